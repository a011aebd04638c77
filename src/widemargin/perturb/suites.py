"""Which attacks make the standard evaluation?  Four in a row; what one breaks the next need not try (AutoAttack)."""

from __future__ import annotations

from widemargin.perturb.apgd import APGD, TargetedAPGD, standard_targets
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import Ball
from widemargin.perturb.fab import FAB
from widemargin.perturb.objectives import dlr_loss, margin_loss
from widemargin.perturb.rows import EFFICIENT_BATCH
from widemargin.perturb.square import Square


def standard(ball: Ball, classes: int, rows_at_once: int = EFFICIENT_BATCH) -> tuple[Attack, ...]:
    """APGD-CE, APGD-T, FAB-T and Square with the standard's constants (Croce & Hein 2020a; in l1 2021).

    It has nine targets, so it is defined for 10 classes and more.  With fewer there are `classes - 1` targets; with 3
    the untargeted DLR loss stands for the targeted, which needs 4, and with 2 the margin of the logits for both.  What
    differs from the standard says so in its name.  `rows_at_once` bounds the memory: see `TargetedAPGD`.

    FAB-T comes before APGD-T, which in the standard it follows.  Robust accuracy is the same in any order; but whom one
    breaks the next need not try, and where gradients mislead FAB breaks many that APGD-T would try in vain.
    """
    if classes < 2:
        raise ValueError(f"a classifier has at least 2 classes, got {classes}")
    rows_at_once = min(rows_at_once, EFFICIENT_BATCH)
    restarts = 5 if ball.sparse else 1
    second: Attack
    if classes < 4:
        second = APGD(ball, margin_loss if classes == 2 else dlr_loss)
    else:
        second = TargetedAPGD(ball, min(standard_targets(ball), classes - 1), rows_at_once=rows_at_once)
    fab = FAB(ball, min(9, classes - 1), rows_at_once=rows_at_once)
    # In l1 FAB is the slower and the weaker of the two.
    targeted = (second, fab) if ball.sparse else (fab, second)
    # Square knows the l_p norms alone.
    last = () if ball.p is None else (Square(ball),)
    return APGD(ball, restarts=restarts), *targeted, *last
