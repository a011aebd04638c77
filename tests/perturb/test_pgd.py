import pytest
import torch
from torch import nn

import widemargin as wm
from lines import lead, line
from widemargin.perturb.objectives import perturbed_loss
from widemargin.perturb.pgd import PGD, pgd_search, stepped
from widemargin.rng import Rng

POINTS = torch.rand(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("norm", [wm.Linf, wm.L2, wm.L1])
def test_a_linear_classifier_is_broken_exactly_where_the_boundary_is_within_reach(norm: type) -> None:
    network, ball = line([3.0, -4.0], 0.7), norm(0.15, wm.OPEN)
    ahead = lead(network, POINTS)
    labels = (ahead > 0).long()
    moved = PGD(ball, 20)(network, POINTS, labels, Rng.seeded(0))
    slope = torch.tensor([[3.0, -4.0]], dtype=torch.float64)
    within_reach = ahead.abs() < 0.15 * ball.dual_norm(slope)
    assert torch.equal((lead(network, moved.points) > 0) != (labels == 1), within_reach)
    assert within_reach.any()
    assert not within_reach.all()
    assert (moved.distance <= 0.15 + 1e-9).all()


def test_training_climbs_and_validation_measures_by_one_search() -> None:
    ball = wm.L2(0.2)
    assert wm.pgd(ball, 0.05, 7).perturb == pgd_search(ball, 0.05, 7)
    assert wm.fgsm(ball).perturb == pgd_search(ball, 0.2, 1)


@pytest.mark.parametrize("norm", [wm.Linf, wm.L2, wm.L1])
def test_search_and_attack_break_the_same_points_of_a_linear_classifier(norm: type) -> None:
    network, ball = line([3.0, -4.0], 0.7), norm(0.15, wm.OPEN)
    labels = (lead(network, POINTS) > 0).long()
    moved = [climb(network, POINTS, labels, Rng.seeded(0)) for climb in (PGD(ball, 20), pgd_search(ball, 0.02, 20))]
    by_attack, by_search = ((lead(network, one.points) > 0) != (labels == 1) for one in moved)
    assert torch.equal(by_attack, by_search)
    assert by_attack.any()


def test_a_search_climbs_the_loss_of_the_members_and_an_attack_that_of_their_answer() -> None:
    with Rng.seeded(0).as_global():
        members = [nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3)).double() for _ in range(3)]
    ball, labels = wm.L2(0.4, wm.OPEN), torch.arange(40) % 3
    one_step = PGD(ball, 1, loss=perturbed_loss), pgd_search(ball, 2.5 * ball.radius, 1)
    for network, same in ((wm.Single(wm.at_input(members[0])), True), (wm.Ensemble(members), False)):
        attack, search = (climb(network.eval(), POINTS, labels, Rng.seeded(0)).delta for climb in one_step)
        moved = attack.any(1)
        assert moved.any()
        assert torch.allclose(attack[moved], search[moved]) == same


def test_targets_are_tried_in_turn_and_stay_in_the_box() -> None:
    network = wm.Single(wm.at_input(nn.Linear(2, 4).double())).eval()
    with torch.no_grad():
        labels = network(POINTS).argmax(1)
    attack = PGD(wm.Linf(0.3), 10, targets=9)
    moved = attack(network, POINTS, labels, Rng.seeded(0))
    assert ((moved.points >= 0) & (moved.points <= 1)).all()
    best = PGD(wm.Linf(0.3), 10)(network, POINTS, labels, Rng.seeded(0))
    broken, by_the_best = (network(found.points).argmax(1) != labels for found in (moved, best))
    assert by_the_best.any()
    assert broken[by_the_best].all()
    assert attack.name == "pgd-10 (9 targets)"


def test_a_step_is_as_long_as_said_and_ends_in_ball_and_box() -> None:
    inputs, uphill = torch.full((1, 2), 0.5), torch.tensor([[1.0, -2.0]])
    ball = wm.Linf(0.1)
    torch.testing.assert_close(stepped(ball, inputs, inputs, uphill, 0.04), torch.tensor([[0.54, 0.46]]))
    torch.testing.assert_close(stepped(ball, inputs, inputs, uphill, 0.4), torch.tensor([[0.6, 0.4]]))
