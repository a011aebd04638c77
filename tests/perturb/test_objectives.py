from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import widemargin
from front_door import public_names
from widemargin import Linf
from widemargin.perturb.ascent import Ascent, Fixed, Gaussian, InBall, Steepest
from widemargin.perturb.objectives import (
    Objective,
    Pair,
    clean_entropy,
    clean_loss,
    divergence,
    objective,
    offset_cross_entropy,
    perturbed_entropy,
    perturbed_expected_entropy,
    perturbed_gap,
    perturbed_log_entropy,
    perturbed_log_expected_entropy,
    perturbed_log_mutual_information,
    perturbed_log_variation_ratio,
    perturbed_loss,
    perturbed_mutual_information,
    perturbed_variation_ratio,
    soft_cross_entropy,
)
from widemargin.perturb.search import Search
from widemargin.rng import Rng

LABELS = torch.tensor([0, 2, 1, 1])
CLEAN, PERTURBED = (2 * Rng.seeded(seed).normal(torch.empty(3, 4, 3, dtype=torch.float64)) for seed in (0, 1))
PAIR = Pair(LABELS, lambda: CLEAN, lambda: PERTURBED)


def loss(logits: Tensor) -> Tensor:
    return -torch.stack([member.softmax(-1)[range(4), LABELS].log() for member in logits]).mean(0)


def mean(logits: Tensor) -> Tensor:
    return logits.softmax(-1).mean(0)


def entropy(probabilities: Tensor) -> Tensor:
    return -(probabilities * probabilities.log()).sum(-1)


def gap(probabilities: Tensor) -> Tensor:
    ordered = probabilities.sort(-1, descending=True).values
    return (ordered[:, 0] / ordered[:, 1]).log()


def information(logits: Tensor) -> Tensor:
    return entropy(mean(logits)) - entropy(logits.softmax(-1)).mean(0)


FORMULAS: list[tuple[Objective, Callable[[Tensor, Tensor], Tensor]]] = [
    (clean_loss, lambda clean, perturbed: loss(clean)),
    (perturbed_loss, lambda clean, perturbed: loss(perturbed)),
    (clean_entropy, lambda clean, perturbed: entropy(mean(clean))),
    (perturbed_entropy, lambda clean, perturbed: entropy(mean(perturbed))),
    (perturbed_log_entropy, lambda clean, perturbed: entropy(mean(perturbed)).log()),
    (perturbed_mutual_information, lambda clean, perturbed: information(perturbed)),
    (perturbed_log_mutual_information, lambda clean, perturbed: information(perturbed).log()),
    (perturbed_expected_entropy, lambda clean, perturbed: entropy(perturbed.softmax(-1)).mean(0)),
    (perturbed_log_expected_entropy, lambda clean, perturbed: entropy(perturbed.softmax(-1)).mean(0).log()),
    (perturbed_variation_ratio, lambda clean, perturbed: 1 - mean(perturbed).amax(-1)),
    (perturbed_log_variation_ratio, lambda clean, perturbed: (1 - mean(perturbed).amax(-1)).log()),
    (perturbed_gap, lambda clean, perturbed: gap(mean(perturbed))),
    (offset_cross_entropy, lambda clean, perturbed: -(mean(clean) * (mean(perturbed) + 1e-8).log()).sum(-1)),
    (divergence, lambda clean, perturbed: (mean(clean) * (mean(clean) / mean(perturbed)).log()).sum(-1)),
    (soft_cross_entropy, lambda clean, perturbed: -(mean(clean) * mean(perturbed).log()).sum(-1)),
]
OBJECTIVES = [climbed for climbed, _ in FORMULAS]
every_objective = pytest.mark.parametrize("climbed", OBJECTIVES, ids=repr)


@pytest.mark.parametrize(("climbed", "formula"), FORMULAS, ids=[repr(climbed) for climbed, _ in FORMULAS])
def test_value_is_the_formula(climbed: Objective, formula: Callable[[Tensor, Tensor], Tensor]) -> None:
    torch.testing.assert_close(climbed(PAIR), formula(CLEAN, PERTURBED))


SUMS: list[tuple[Objective, Callable[[Tensor, Tensor], Tensor]]] = [
    (clean_loss + perturbed_loss, lambda a, b: a + b),
    (clean_loss - perturbed_loss, lambda a, b: a - b),
    (0.25 * clean_loss + perturbed_loss * 3.0, lambda a, b: 0.25 * a + 3 * b),
    (-(clean_loss - 2.0 * perturbed_loss), lambda a, b: 2 * b - a),
    (0.5 * (clean_loss + clean_loss - perturbed_loss), lambda a, b: a - b / 2),
]


@pytest.mark.parametrize(("built", "value"), SUMS, ids=[repr(built) for built, _ in SUMS])
def test_objectives_are_added_subtracted_and_scaled(
    built: Objective, value: Callable[[Tensor, Tensor], Tensor]
) -> None:
    torch.testing.assert_close(built(PAIR), value(clean_loss(PAIR), perturbed_loss(PAIR)))
    assert eval(repr(built), public_names()) == built


@every_objective
def test_repr_is_the_public_name(climbed: Objective) -> None:
    assert getattr(widemargin.perturb, repr(climbed)) is climbed


@every_objective
def test_only_the_side_that_is_read_is_paid_for(climbed: Objective) -> None:
    def unread() -> Tensor:
        raise AssertionError("this side was not to be read")

    name = repr(climbed)
    if name.startswith("clean"):
        climbed(Pair(LABELS, lambda: CLEAN, unread))
    elif name.startswith("perturbed"):
        climbed(Pair(LABELS, unread, lambda: PERTURBED))
    else:
        with pytest.raises(AssertionError):
            climbed(Pair(LABELS, unread, lambda: PERTURBED))


def gradient_at_center(climbed: Objective) -> Tensor:
    logits = CLEAN.clone().requires_grad_()
    return torch.autograd.grad(climbed(Pair(LABELS, lambda: CLEAN, lambda: logits)).sum(), logits)[0]


@every_objective
def test_terms_say_truly_whether_they_move_and_whether_they_are_flat_at_the_center(climbed: Objective) -> None:
    ((_, term),) = climbed.terms
    if not term.moves:
        with pytest.raises(RuntimeError, match="does not require grad"):
            gradient_at_center(climbed)
    else:
        assert (gradient_at_center(climbed).abs().max() < 1e-12) == term.flat_at_center


@pytest.mark.parametrize("climbed", [divergence, soft_cross_entropy, clean_loss + 0.1 * divergence], ids=repr)
def test_a_search_of_nothing_but_a_divergence_must_not_start_at_the_center(climbed: Objective) -> None:
    steps = Fixed(3), Steepest(0.1)
    with pytest.raises(ValueError, match=r" has no gradient at the clean point: start the search elsewhere, with "):
        Search(climbed, Linf(0.3), Ascent(*steps))
    for start in (Gaussian(), InBall()):
        Search(climbed, Linf(0.3), Ascent(*steps, start))
    Search(climbed + 1e-4 * perturbed_log_entropy, Linf(0.3), Ascent(*steps))


def test_the_offsets_gradient_at_the_center_points_to_less_confidence() -> None:
    one = CLEAN[:1].clone().requires_grad_()
    climbed = offset_cross_entropy(Pair(LABELS, lambda: CLEAN[:1], lambda: one))
    (gradient,) = torch.autograd.grad(climbed.sum(), one)
    # That of the sum of (1 - C p_j) z_j over C classes, as long as all p_j are well above the offset.
    torch.testing.assert_close(1e8 * gradient, 1 - one.shape[-1] * one.detach().softmax(-1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("climbed", [clean_loss, clean_loss - 0.5 * clean_entropy], ids=repr)
def test_a_search_of_what_does_not_move_is_refused(climbed: Objective) -> None:
    with pytest.raises(ValueError, match=r"^a search must climb something that changes as the point moves, got clean"):
        Search(climbed, Linf(0.3), Ascent(Fixed(1), Steepest(0.1)))


def test_an_objective_of_ones_own_is_named_after_its_function() -> None:
    @objective
    def top_logit(pair: Pair) -> Tensor:
        return pair.perturbed().mean(0).amax(-1)

    assert repr(2.0 * top_logit - clean_loss) == "2.0 * top_logit + -1.0 * clean_loss"
    torch.testing.assert_close(top_logit(PAIR), PERTURBED.mean(0).amax(-1))
