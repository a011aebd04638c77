import copy
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from linear_oracle import KINDS, NORMS, known_distances
from widemargin import L2, OPEN, Dataset, Linf, Single, at_input
from widemargin.data.dataset import Subset
from widemargin.measure.autoattack import autoattack
from widemargin.measure.curve import Curve, Progress, bisected, robustness
from widemargin.measure.distance import NO_ATTACK
from widemargin.measure.interval import wilson
from widemargin.networks.mlp import MLP
from widemargin.perturb.attack import Attack, Perturbed, perturbed
from widemargin.perturb.balls import UNIT, Ball, Norm
from widemargin.perturb.fmn import FMN
from widemargin.perturb.suites import standard
from widemargin.rng import AnyRng, Rng
from widemargin.uncertainty.network import Network

RADII = [0.02 * (i + 1) for i in range(16)]
BALLS = [Linf(radius) for radius in RADII]


@dataclass(frozen=True)
class Scaled:
    """A shortest attack's place, pulled into the ball: exact for linear classifiers."""

    ball: Ball
    steps: int = 8
    name = "scaled"

    def __call__(self, model: Network, inputs: Tensor, labels: Tensor, rng: AnyRng) -> Perturbed:
        found = FMN(type(self.ball), self.ball.box, self.steps)(model, inputs, labels, rng).points
        return perturbed(self.ball, inputs, inputs + self.ball.project(found - inputs, inputs))


def attacks(ball: Ball) -> Sequence[Attack]:
    return (Scaled(ball, 2), Scaled(ball))


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_for_two_linear_classes_the_curve_is_known(norm: Norm) -> None:
    kind = KINDS[0]
    network, cloud = kind.draw(100)
    wrong = torch.arange(100) < 7
    cloud = Dataset(cloud.points, torch.where(wrong, 1 - cloud.labels, cloud.labels))
    known = torch.tensor(known_distances(network, Dataset(cloud.points, (network(cloud.points)).argmax(1)), norm, UNIT))
    # Between the points, so that rounding cannot matter.
    between = known.sort().values
    radii = ((between[5:-5:6] + between[6:-4:6]) / 2).tolist()
    curve = robustness(network, cloud, [norm(radius) for radius in radii], attacks)
    assert (curve.n, len(radii)) == (100, 15)
    assert [part.count for part in curve.accuracy] == [int(((known > r) & ~wrong).sum()) for r in radii]
    assert curve.accuracy[3] == wilson(curve.accuracy[3].count, 100)
    assert curve.clean.count == 93
    assert bool((curve.low[~wrong] < known[~wrong]).all() and (known[~wrong] < curve.high[~wrong]).all())
    assert bool((curve.high[wrong] == 0).all() and (curve.low[wrong] == 0).all())
    assert bool((curve.points.tests[wrong] == 0).all())
    assert bool((curve.points.tests <= 4).all())


@dataclass(frozen=True)
class Straight:
    """To the surface of the ball in the direction of the gradient: breaks who is within the radius of a line."""

    ball: Ball
    name = "straight"

    def __call__(self, model: Network, inputs: Tensor, labels: Tensor, rng: AnyRng) -> Perturbed:
        places = inputs.detach().requires_grad_()
        with torch.enable_grad():
            loss = -model(places).gather(1, labels[:, None]).sum()
            (gradient,) = torch.autograd.grad(loss, places)
        delta = self.ball.project(self.ball.radius * self.ball.steepest(gradient), inputs)
        return perturbed(self.ball, inputs, inputs + delta)


def bumpy() -> tuple[Network, Dataset]:
    with Rng.seeded(2).as_global():
        network = Single(at_input(MLP(4, 32, 3)))
        points = torch.rand(150, 4)
        labels = network(points).argmax(1)
    labels[::10] = (labels[::10] + 1) % 3
    return network, Dataset(points, labels)


def test_nested_balls_say_the_same_as_each_ball_alone() -> None:
    network, cloud = bumpy()
    curve = robustness(network, cloud, BALLS, attacks, seed=1)
    alone = [autoattack(network, cloud, ball, attacks(ball), seed=1) for ball in BALLS]
    for index, (nested, single) in enumerate(zip(curve.accuracy, alone, strict=True)):
        # A place found in one ball decides others too, so nested may know more, never less than chance allows.
        assert nested.count <= int(single.standing.sum()) + 1, index
        assert nested.count >= int(single.standing.sum()) - 3, index
    shares = [part.fraction for part in curve.accuracy]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1] + 0.2


def test_a_curve_of_16_radii_costs_about_four_evaluations() -> None:
    network, cloud = bumpy()
    curve = robustness(network, cloud, BALLS, attacks)
    assert curve.tests <= 4.5
    assert curve.points.tests.max() <= 5
    assert curve.point_attacks <= 2 * 4.5 * curve.n
    assert curve.radii == tuple(RADII)


def test_a_place_that_is_found_decides_all_radii_from_its_distance_on() -> None:
    """One test each: the middle ball's place lies on the boundary of a line, just beyond the ball before."""
    layer = nn.Linear(1, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        layer.bias.zero_()
    cloud = Dataset(torch.tensor([[-0.35], [-3.5], [0.2]]), torch.zeros(3, dtype=torch.int64))
    balls = [L2(0.1 * (i + 1), OPEN) for i in range(15)]
    curve = robustness(Single(at_input(layer)), cloud, balls, lambda ball: [Straight(ball)])
    assert curve.points.distance[:2].tolist() == [pytest.approx(0.35, rel=1e-4), math.inf]
    assert curve.low.tolist() == pytest.approx([0.3, 1.5, 0])
    assert curve.high.tolist() == pytest.approx([0.4, math.inf, 0])
    # 8 (found, decides 4 and up), then 2, 3: the others were decided by the place.
    assert curve.points.tests.tolist() == [3, 4, 0]


@dataclass(frozen=True)
class FarOnly:
    """Blind in small balls, although what it finds in large ones lies nearer than those."""

    ball: Ball
    name = "far only"

    def __call__(self, model: Network, inputs: Tensor, labels: Tensor, rng: AnyRng) -> Perturbed:
        if self.ball.radius > 0.85:
            return Straight(self.ball)(model, inputs, labels, rng)
        return perturbed(self.ball, inputs, inputs)


def test_a_place_is_believed_more_than_an_attack_that_failed() -> None:
    layer = nn.Linear(1, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        layer.bias.zero_()
    cloud = Dataset(torch.tensor([[-0.35]]), torch.zeros(1, dtype=torch.int64))
    balls = [L2(0.1 * (i + 1), OPEN) for i in range(15)]
    curve = robustness(Single(at_input(layer)), cloud, balls, lambda ball: [FarOnly(ball)])
    assert (curve.low.item(), curve.high.item()) == pytest.approx((0.3, 0.4))


def test_an_interrupted_evaluation_goes_on_to_the_same_end() -> None:
    network, cloud = bumpy()
    whole: list[Progress] = []
    curve = robustness(network, cloud, BALLS, attacks, rows=75, on_progress=whole.append)
    assert len(whole) > 5
    shares = [progress.share_done for progress in whole]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    rest: list[Progress] = []
    again = robustness(network, cloud, BALLS, attacks, rows=75, progress=whole[2], on_progress=rest.append)
    assert len(rest) == len(whole) - 3
    same(again, curve)
    same(robustness(network, cloud, BALLS, attacks, rows=75, progress=whole[-1]), curve)


@pytest.mark.parametrize("rows", [1, 7])
def test_a_point_does_not_depend_on_its_batch(rows: int) -> None:
    network, cloud = bumpy()
    network, cloud = network.double(), Dataset(cloud.points[:8].double(), cloud.labels[:8])
    same(robustness(network, cloud, BALLS, attacks, rows=rows), robustness(network, cloud, BALLS, attacks))


@dataclass(frozen=True)
class OneSide:
    """Breaks only who lies on its side."""

    ball: Ball
    left: bool
    name = "one side"

    def __call__(self, model: Network, inputs: Tensor, labels: Tensor, rng: AnyRng) -> Perturbed:
        moved = Scaled(self.ball)(model, inputs, labels, rng).points
        mine = ((inputs[:, 0] < 0.5) == self.left)[:, None]
        return perturbed(self.ball, inputs, torch.where(mine, moved, inputs))


def test_who_broke_a_point_is_known() -> None:
    network, cloud = bumpy()
    curve = robustness(network, cloud, BALLS, lambda ball: [OneSide(ball, True), OneSide(ball, False)])
    broken = (curve.points.breaks < len(BALLS)) & (curve.points.distance > 0)
    assert 20 < int(broken.sum()) < 135
    assert bool((curve.points.by[~broken] == NO_ATTACK).all())
    assert torch.equal(curve.points.by[broken], (cloud.points[broken, 0] >= 0.5).long())


def test_in_one_ball_it_is_what_the_attacks_in_turn_say() -> None:
    network, cloud = bumpy()
    ball = Linf(0.1)
    curve, alone = robustness(network, cloud, [ball], attacks), autoattack(network, cloud, ball, attacks(ball))
    assert torch.equal(curve.points.breaks == 1, alone.standing)
    # There 0 is for points that are wrong where they are; here it is the first attack, and those are nobody's.
    assert torch.equal(curve.points.by, torch.where(alone.broken_by > 0, alone.broken_by - 1, NO_ATTACK))
    assert len(set(curve.points.by.tolist())) == 3


@dataclass(frozen=True, eq=False)
class Noted:
    """Another attack, which notes the points on which it is run."""

    attack: Attack
    seen: list[Tensor]
    name = "noted"

    def __call__(self, model: Network, inputs: Tensor, labels: Tensor, rng: AnyRng) -> Perturbed:
        self.seen.extend(inputs)
        return self.attack(model, inputs, labels, rng)


def test_it_is_known_on_which_points_each_attack_was_run() -> None:
    network, cloud = bumpy()
    seen: tuple[list[Tensor], list[Tensor]] = ([], [])
    curve = robustness(
        network,
        cloud,
        [Linf(radius) for radius in (0.05, 0.1, 0.2)],
        lambda ball: tuple(Noted(one, notes) for one, notes in zip(attacks(ball), seen, strict=True)),
    )
    for number, notes in enumerate(seen):
        run_on = (cloud.points[:, None] == torch.stack(notes)).flatten(2).all(2).any(1)
        assert torch.equal(curve.points.tried > number, run_on)
    assert len(set(curve.points.tried.tolist())) == 3, "some points are decided by the first attack, some by none"


def test_by_default_the_attacks_are_the_standard_ensemble() -> None:
    kind = KINDS[4]
    network, cloud = kind.draw(12)
    known = torch.tensor(known_distances(network, cloud, Linf, OPEN))
    between = known.sort().values
    ball = Linf(float(between[6] + between[7]) / 2, OPEN)
    curve = robustness(network, cloud, [ball])
    assert torch.equal(curve.points.breaks == 1, known > ball.radius)
    # All four on who stands, and on nobody else: Square, the last, breaks nothing that the gradients leave.
    assert torch.equal(curve.points.attacks == 4, known > ball.radius)
    three = autoattack(network, cloud, ball, standard(ball, 2)[:3])
    assert torch.equal(curve.points.by, torch.where(three.standing, NO_ATTACK, three.broken_by - 1))


def same(one: Curve, other: Curve) -> None:
    assert torch.equal(one.low, other.low)
    assert torch.equal(one.high, other.high)
    assert torch.equal(one.points.attacks, other.points.attacks)
    torch.testing.assert_close(one.points.distance, other.points.distance, rtol=1e-6, atol=0)


def test_certified_radii_are_not_attacked() -> None:
    kind = KINDS[0]
    network, cloud = kind.draw(60)
    known = torch.tensor(known_distances(network, cloud, Linf, UNIT))
    free = robustness(network, cloud, BALLS, attacks)
    helped = robustness(network, cloud, BALLS, attacks, known_below=0.95 * known)
    assert torch.equal(helped.low, free.low)
    assert torch.equal(helped.high, free.high)
    assert helped.point_attacks < 0.6 * free.point_attacks
    far = robustness(network, cloud, BALLS, attacks, known_below=torch.full((60,), 9.0, dtype=torch.float64))
    assert far.point_attacks == 0
    assert [part.fraction for part in far.accuracy] == [1.0] * 16


def test_a_certificate_that_a_place_refutes_is_an_error() -> None:
    network, cloud = bumpy()
    with pytest.raises(ValueError, match=r"^point \d+ is certified up to 0.25, but a wrong place was found at 0\.\d+"):
        robustness(network, cloud, BALLS, attacks, known_below=torch.full((150,), 0.25))
    # Also where what is known leaves nothing to attack, and by its number in the data.
    known = {"known_below": torch.full((1,), 0.9), "known_above": torch.full((1,), 0.1)}
    with pytest.raises(ValueError, match=r"^point 7 is certified up to 0.9, but a wrong place was found at 0.1"):
        robustness(network, Subset(Subset(cloud, torch.arange(3, 20)), torch.tensor([4])), BALLS, attacks, **known)


def test_brackets_are_as_narrow_as_asked() -> None:
    kind = KINDS[4]
    network, cloud = kind.draw(50)
    known = torch.tensor(known_distances(network, cloud, L2, OPEN))
    curve = bisected(network, cloud, L2(0.4, OPEN), attacks, halvings=6)
    near = known < 0.4
    assert 10 < near.sum() < 50
    assert bool((curve.low < known * 1.0001).all() and (known < curve.high * 1.0001).all())
    torch.testing.assert_close((curve.high - curve.low)[near], torch.full_like(known[near], 0.4 / 64))
    assert bool((curve.high[~near] == math.inf).all())
    assert curve.points.tests.max() <= 7


def test_the_network_stays_as_it_is() -> None:
    with Rng.seeded(1).as_global():
        network = Single(at_input(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3))))
    before, chance = copy.deepcopy(network.train().state_dict()), torch.get_rng_state()
    robustness(network, bumpy()[1], BALLS, attacks)
    assert all(module.training for module in network.modules())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())
    assert torch.equal(torch.get_rng_state(), chance)


@pytest.mark.parametrize(
    ("balls", "message"),
    [
        ([], "a curve needs at least one ball, got none"),
        ([Linf(0.1), L2(0.2)], "all balls of a curve must have the same norm and the same box, got several"),
        ([Linf(0.1), Linf(0.2, OPEN)], "all balls of a curve must have the same norm and the same box, got several"),
        ([Linf(0.2), Linf(0.2)], r"radii must ascend, got \[0.2, 0.2\]"),
    ],
)
def test_balls_that_are_not_nested_are_refused(balls: list[Ball], message: str) -> None:
    network, cloud = bumpy()
    with pytest.raises(ValueError, match=f"^{message}"):
        robustness(network, cloud, balls, attacks)


def test_what_does_not_fit_is_refused() -> None:
    network, cloud = bumpy()
    with pytest.raises(ValueError, match=r"^known_below must have one radius for each of 150 points, got 3"):
        robustness(network, cloud, BALLS, attacks, known_below=torch.zeros(3))
    progress = robustness(network, cloud, BALLS, attacks).points
    with pytest.raises(ValueError, match=r"^the progress is that of other examples or balls"):
        robustness(network, cloud, BALLS[:1], attacks, progress=progress)
    # Without the types that are checked in tests alone.
    with pytest.raises(ValueError, match=r"^the network must be a Network, got Linear: use Single"):
        inspect.unwrap(robustness)(nn.Linear(2, 2), cloud, BALLS)
    with pytest.raises(ValueError, match=r"^there must be at least one attack in Linf"):
        robustness(network, cloud, BALLS, lambda ball: [])
    with pytest.raises(ValueError, match=r"^halvings must be a whole number of at least 1, got 0"):
        bisected(network, cloud, Linf(1.0), attacks, 0)


def test_what_is_known_beforehand_saves_attacks_and_changes_nothing() -> None:
    network, cloud = KINDS[0].draw(40)
    known = torch.tensor(known_distances(network, cloud, Linf, UNIT))
    plain = robustness(network, cloud, BALLS, attacks)
    told = robustness(network, cloud, BALLS, attacks, known_above=known)
    assert torch.equal(told.points.breaks, plain.points.breaks)
    # One ball each, the largest in which the point stands, if there is one.
    assert bool((told.points.tests <= 1).all())
    assert told.point_attacks < plain.point_attacks
    with pytest.raises(ValueError, match="known_above must have one radius for each of 40 points, got 3"):
        robustness(network, cloud, BALLS, attacks, known_above=torch.ones(3))


@dataclass(frozen=True)
class OutOfBox:
    """The first feature below, the second above what the box allows."""

    name: str = "out of box"

    def __call__(self, model: Network, inputs: Tensor, labels: Tensor, rng: AnyRng) -> Perturbed:
        return perturbed(Linf(1.0), inputs, inputs + torch.tensor([-0.6, 0.6]))


def test_a_place_out_of_the_box_breaks_nothing() -> None:
    layer = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(2))
    network, cloud = Single(at_input(layer)), Dataset(torch.tensor([[0.8, 0.5]]), torch.tensor([0]), (0, 1))
    assert robustness(network, cloud, [Linf(0.7)], lambda ball: (OutOfBox(),)).accuracy[0].count == 1
    assert robustness(network, cloud, [Linf(0.7, OPEN)], lambda ball: (OutOfBox(),)).accuracy[0].count == 0
