import copy

import pytest
import torch
from torch import nn

from widemargin import L2, OPEN, Dataset, Linf, Single, at_input
from widemargin.measure.accuracy import correct
from widemargin.measure.robustness import robust, robust_accuracy
from widemargin.perturb.ascent import Ascent, Fixed, InBall, Steepest, Uniform
from widemargin.perturb.balls import Ball
from widemargin.perturb.objectives import perturbed_log_entropy, perturbed_loss
from widemargin.perturb.pgd import pgd_search
from widemargin.perturb.search import Search
from widemargin.rng import Rng
from widemargin.uncertainty.cuts import after
from widemargin.uncertainty.network import Network

POINTS = Rng.seeded(1).normal(torch.empty(60, 2, dtype=torch.float64))
WEIGHT = torch.tensor([[1.0, 2.0], [-1.0, -2.0]], dtype=torch.float64)
LABELS = (POINTS @ WEIGHT.T).argmax(1)


def line() -> Single:
    layer = nn.Linear(2, 2, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(WEIGHT)
        layer.bias.zero_()
    return Single(at_input(layer))


@pytest.mark.parametrize("ball", [L2(0.4, OPEN), Linf(0.3, OPEN)], ids=repr)
def test_for_a_line_the_answer_is_known(ball: Ball) -> None:
    reach = ball.radius * ball.dual_norm(torch.tensor([[1.0, 2.0]], dtype=torch.float64))
    known = (POINTS @ WEIGHT.T).abs()[:, 0] > reach
    assert 0 < known.sum() < 60
    assert torch.equal(robust(line(), Dataset(POINTS, LABELS), pgd_search(ball, ball.radius, 5)), known)
    wrong = 1 - LABELS
    assert robust_accuracy(line(), Dataset(POINTS, wrong), pgd_search(ball, ball.radius, 5)) == 0


def deep() -> Network:
    with Rng.seeded(3).as_global():
        layers = [nn.Linear(2, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(), nn.Linear(16, 3)]
        return Single(after(nn.Sequential(*layers), 3)).double()


RANDOM = Search(perturbed_loss, L2(0.5, OPEN), Ascent(Uniform(1, 3), Steepest(0.2), InBall()))
CLOUD = Dataset(POINTS, torch.arange(60) % 3)


@pytest.mark.parametrize("rows", [1, 7, 59])
def test_what_is_drawn_for_an_example_does_not_depend_on_its_batch(rows: int) -> None:
    assert torch.equal(robust(deep(), CLOUD, RANDOM, restarts=2, rows=rows), robust(deep(), CLOUD, RANDOM, restarts=2))


def test_more_restarts_leave_fewer_standing_and_none_that_was_wrong() -> None:
    one, clean = deep(), correct(deep(), CLOUD)
    once, often = (robust(one, CLOUD, RANDOM, restarts=restarts) for restarts in (1, 8))
    assert not (once & ~clean).any()
    assert not (often & ~once).any()
    assert often.sum() < once.sum() < clean.sum()


def test_the_network_stays_as_it_is() -> None:
    one = deep().train()
    before = copy.deepcopy(one.state_dict())
    chance = torch.get_rng_state()
    robust(one, CLOUD, RANDOM)
    assert all(module.training for module in one.modules())
    assert all(torch.equal(value, before[name]) for name, value in one.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in one.parameters())
    assert torch.equal(torch.get_rng_state(), chance)


def test_inputs_are_attacked_wherever_the_network_is_cut() -> None:
    with Rng.seeded(5).as_global():
        chain = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    attack = pgd_search(Linf(0.5, OPEN), 0.2, 4)
    found = [robust(Single(cut), CLOUD, attack) for cut in (at_input(chain), after(chain, 2))]
    assert torch.equal(*found)


@pytest.mark.parametrize(
    ("attack", "restarts", "message"),
    [
        (Search(perturbed_log_entropy, L2(1), Ascent(Fixed(1), Steepest(1))), 1, "robust accuracy must be measured by"),
        (RANDOM, 0, "restarts must be a whole number of at least 1, got 0"),
        (pgd_search(L2(1), 1, 1), 3, "3 restarts from the clean point all go the same way"),
    ],
    ids=["uncertainty", "none", "same"],
)
def test_what_is_no_attack_is_refused(attack: Search, restarts: int, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        robust(line(), CLOUD, attack, restarts=restarts)
