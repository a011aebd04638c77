"""Suites, as frozen values: which attacks make the standard evaluation (AutoAttack), and which measure a margin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from widemargin.perturb.apgd import APGD, TargetedAPGD, standard_targets
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import Ball, Box, Norm
from widemargin.perturb.bisected_apgd import BisectedAPGD
from widemargin.perturb.ddn import DDN
from widemargin.perturb.fab import FAB, ShortestFAB
from widemargin.perturb.fmn import FMN
from widemargin.perturb.objectives import dlr_loss, margin_loss
from widemargin.perturb.rows import EFFICIENT_BATCH, has_few_features
from widemargin.perturb.square import Square
from widemargin.shapes import Points

# A table's points have twice as many starts as features, within these bounds.
_FEWEST_STARTS, _MOST_STARTS = 16, 48
# In how many balls APGD looks once FMN began in many places: little is left to find.
_BALLS_OF_TABLES = 1


class Suite(Protocol):
    """Attacks in a ball, in turn: what one breaks the next need not try.  A frozen value."""

    def __call__(self, ball: Ball, classes: int, rows_at_once: int = EFFICIENT_BATCH) -> tuple[Attack, ...]: ...


class ShortestSuite(Protocol):
    """Attacks without a radius, of which the nearest place counts.  A frozen value."""

    def __call__(
        self, norm: Norm, box: Box, classes: int, rows_at_once: int = EFFICIENT_BATCH, starts: int = 1
    ) -> tuple[Attack, ...]: ...


@dataclass(frozen=True)
class Standard:
    """APGD-CE, APGD-T, FAB-T and Square with the standard's constants (Croce & Hein 2020a; in l1 2021).

    It has nine targets, so it is defined for 10 classes and more.  With fewer there are `classes - 1` targets; with 3
    the untargeted DLR loss stands for the targeted, which needs 4, and with 2 the margin of the logits for both.  What
    differs from the standard says so in its name.  `rows_at_once` bounds the memory: see `TargetedAPGD`.

    FAB-T comes before APGD-T, which in the standard it follows.  Robust accuracy is the same in any order; but whom one
    breaks the next need not try, and where gradients mislead FAB breaks many that APGD-T would try in vain.
    """

    def __call__(self, ball: Ball, classes: int, rows_at_once: int = EFFICIENT_BATCH) -> tuple[Attack, ...]:
        if classes < 2:
            raise ValueError(f"a classifier has at least 2 classes, got {classes}")
        rows_at_once = min(rows_at_once, EFFICIENT_BATCH)
        first = APGD(ball, restarts=5 if ball.sparse else 1)
        fab = FAB(ball, min(9, classes - 1), rows_at_once=rows_at_once)
        second: Attack
        if classes < 4:
            second = APGD(ball, margin_loss if classes == 2 else dlr_loss)
        else:
            second = TargetedAPGD(ball, min(standard_targets(ball), classes - 1), rows_at_once=rows_at_once)
        # In l1 FAB is the slower and the weaker of the two.
        targeted = (second, fab) if ball.sparse else (fab, second)
        # Square knows the l_p norms alone.
        return (first, *targeted, *(() if ball.p is None else (Square(ball),)))


@dataclass(frozen=True)
class Shortest:
    """Several, because each fails on some networks: the least of them all is the margin.

    APGD comes last, in balls inside of what the others found.
    `rows_at_once` bounds the memory: see `ShortestFAB`.  How many `starts` are cheap: see `starts_of`.  With more than
    one, FMN ends with a descent towards whichever class leads and finds what DDN and FAB find: they are left out.
    """

    def __call__(
        self, norm: Norm, box: Box, classes: int, rows_at_once: int = EFFICIENT_BATCH, starts: int = 1
    ) -> tuple[Attack, ...]:
        targets = min(3, classes - 1)
        fmn = FMN(norm, box, targets=targets, starts=starts)
        if starts > 1:
            return (fmn, BisectedAPGD(norm, box, trials=_BALLS_OF_TABLES))
        fab = ShortestFAB(norm(1.0, box), targets, steps=20, rows_at_once=min(rows_at_once, EFFICIENT_BATCH))
        return (fmn, DDN(box) if norm.p == 2 else FMN(norm, box, steps=50), fab, BisectedAPGD(norm, box))


standard = Standard()
shortest = Shortest()


def starts_of(inputs: Points) -> int:
    """From how many places a search begins: of a table a few more rows cost nothing, of images as much as the first."""
    return min(max(2 * inputs.shape[1], _FEWEST_STARTS), _MOST_STARTS) if has_few_features(inputs) else 1
