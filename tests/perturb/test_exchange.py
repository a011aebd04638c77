import torch
from torch import Tensor

from widemargin import Dataset, Single, at_input
from widemargin.measure.distance import distances
from widemargin.networks.mlp import MLP
from widemargin.perturb.attack import Classifier, Perturbed, perturbed
from widemargin.perturb.balls import L1, OPEN, Box
from widemargin.perturb.exchange import _exchanges, exchange
from widemargin.perturb.refine import refine
from widemargin.perturb.rows import wrong
from widemargin.rng import AnyRng, Rng


def corner(points: Tensor) -> Tensor:
    """Feature 0 counts at once; feature 1 counts more, but all but nothing up to .9."""
    first, second = points[:, 0], points[:, 1]
    lead = first - 2 + 0.1 * second + 10 * (second - 0.9).relu()
    return torch.stack([torch.zeros_like(lead), lead], 1)


INPUT, LABEL, STUCK = torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), torch.tensor([[2.001, 0.0]])
# Where .1 x + 10 (x - .9) is 2.
NEAREST = 11 / 10.1


def test_it_leaves_the_corner_in_which_refinement_ends() -> None:
    ball = L1(0.0, OPEN)
    assert torch.allclose(ball.norm(refine(corner, INPUT, LABEL, STUCK, ball)), torch.tensor(2.0), atol=1e-3)
    nearest = exchange(corner, INPUT, LABEL, STUCK, ball)
    assert torch.allclose(ball.norm(nearest), torch.tensor(NEAREST), atol=1e-3)
    assert bool(wrong(corner(nearest), LABEL).all())


def test_a_fixed_feature_takes_nothing() -> None:
    nearest = exchange(corner, INPUT, LABEL, STUCK, L1(0.0, Box(-5, 5, fixed=(1,))))
    assert nearest[0, 1] == 0
    assert 2 <= float(nearest[0, 0]) <= float(STUCK[0, 0])


def test_the_box_is_kept() -> None:
    nearest = exchange(corner, INPUT, LABEL, STUCK, L1(0.0, Box(-1.0, 2.5)))
    assert torch.allclose(nearest, torch.tensor([[0.0, NEAREST]]), atol=1e-3)
    narrow = Box((-1.0, -1.0), (2.5, 1.0))
    nearest = exchange(corner, INPUT, LABEL, STUCK, L1(0.0, narrow))
    narrow.check(nearest)
    assert float(nearest.abs().sum()) < 2


def test_no_place_becomes_farther_or_right_and_points_without_one_stay() -> None:
    with Rng.seeded(3).as_global():
        network, inputs = MLP(12, 20, 20, 3), torch.randn(150, 12)
    labels = network(inputs).argmax(1)
    ball = L1(0.0, OPEN)
    places = refine(network, inputs, labels, inputs + 20 * Rng.seeded(4).normal(torch.empty(150, 12)), ball)
    found = (places != inputs).any(1)
    assert int(found.sum()) > 20
    nearest = exchange(network, inputs, labels, places, ball)
    before, after = ball.norm(places - inputs), ball.norm(nearest - inputs)
    assert bool((after <= before).all())
    assert int((after[found] < 0.99 * before[found]).sum()) > 5
    assert bool(wrong(network(nearest[found]), labels[found]).all())
    assert torch.equal(nearest[~found], inputs[~found])


def test_exchanges_are_as_long_as_the_step_and_those_that_a_loop_lists() -> None:
    with Rng.seeded(0).as_global():
        delta, slopes = torch.randn(3, 20, dtype=torch.float64), torch.randn(3, 20, dtype=torch.float64)
    for one in range(3):
        listed = set()
        order = delta[one].abs().argsort(descending=True)[:4].tolist()
        steepest = slopes[one].abs().argsort(descending=True)[:16].tolist()
        ways = [([giver], share) for giver in order for share in (1.0, 0.5, 0.25, 0.0625)]
        ways += [([a, b], share) for a in order for b in order if a != b for share in (1.0, 0.5, 0.2)]
        ways += [(list(range(20)), share) for share in (1.0, 0.5, 0.25, 0.1)]
        for givers, share in ways:
            for receiver in steepest:
                step = delta[one].clone()
                given = float(step[givers].abs().sum()) * share
                step[givers] *= 1 - share
                step[receiver] += given * slopes[one][receiver].sign()
                listed.add(tuple(round(float(value), 6) for value in step))
        made = _exchanges(delta[one : one + 1], slopes[one : one + 1])[0]
        assert {tuple(round(float(value), 6) for value in step) for step in made} == listed
        assert bool((made.abs().sum(1) <= delta[one].abs().sum() + 1e-9).all())


def test_the_margin_of_a_row_is_tried_with_other_features() -> None:
    class Stuck:
        name = "stuck"

        def __call__(self, model: Classifier, inputs: Tensor, labels: Tensor, rng: AnyRng) -> Perturbed:
            return perturbed(L1(0.0, OPEN), inputs, STUCK.expand_as(inputs))

    class Corner(torch.nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            return corner(points)

    found = distances(Single(at_input(Corner())), Dataset(INPUT, LABEL), L1, OPEN, (Stuck(),))
    assert torch.allclose(found.distance, torch.tensor([NEAREST]), atol=1e-3)
    assert found.by.tolist() == [0]
