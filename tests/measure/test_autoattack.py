from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from widemargin import L1, L2, OPEN, Box, Linf, Single, at_input
from widemargin.data.dataset import Dataset, Subset
from widemargin.measure.autoattack import CLEAN, ROBUST, Attacked, autoattack, autoattack_batches
from widemargin.networks.mlp import MLP
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import Ball
from widemargin.perturb.frozen import frozen
from widemargin.perturb.square import Square
from widemargin.perturb.suites import standard
from widemargin.rng import RowRng
from widemargin.uncertainty.network import Network


def convolution(classes: int = 10) -> Network:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5), nn.Flatten()]
        return Single(at_input(nn.Sequential(*layers, nn.Linear(72, classes))))


def images(network: Network, count: int = 24) -> Dataset:
    """Dataset by the network itself but for two."""
    inputs = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), frozen(network):
        labels = network(inputs).argmax(1)
    labels[:2] = (labels[:2] + 1) % 3
    return Dataset(inputs, labels)


def small(ball: Ball, classes: int, steps: int = 5) -> tuple[Attack, ...]:
    """The standard's with fewer steps."""
    made = []
    for attack in standard(ball, classes):
        change = {"queries": 8 * steps} if isinstance(attack, Square) else {"steps": steps}
        made.append(replace(attack, **change))  # type: ignore[type-var]
    return tuple(made)


BALLS = (Linf(0.1), L2(0.5), L1(2.0), Linf(0.1, OPEN), L2(0.5, Box((-0.1,) * 64, (1.0, 1.1) * 32)))


@pytest.mark.parametrize("ball", BALLS, ids=lambda ball: f"{type(ball).__name__} {str(ball.box)[:8]}")
def test_stays_in_ball_and_box_and_does_not_depend_on_the_batch(ball: Ball) -> None:
    network = convolution(4)
    cloud = images(network)
    attacks = small(ball, 4)
    whole = autoattack(network, cloud, ball, attacks)
    assert 0 < whole.robust_accuracy < whole.accuracy < 1
    assert float(ball.norm(whole.points - cloud.points).max()) <= ball.radius * (1 + 1e-6)
    ball.box.check(whole.points)
    shuffled = torch.randperm(24, generator=torch.Generator().manual_seed(3))
    parts = list(autoattack_batches(network, cloud, ball, attacks, rows=shuffled, rows_at_once=5))
    assert [len(part.rows) for part in parts] == [5, 5, 5, 5, 4]
    again = Attacked.joined(parts)
    assert torch.equal(again.rows, shuffled)
    assert torch.equal(again.broken_by, whole.broken_by[shuffled])
    assert torch.allclose(again.points, whole.points[shuffled], atol=1e-5)
    same = autoattack(network, cloud, ball, attacks)
    assert torch.equal(same.points, whole.points)


@pytest.mark.parametrize("ball", BALLS[:3], ids=repr)
def test_each_attack_is_alone_what_it_is_in_a_batch(ball: Ball) -> None:
    network = convolution(4)
    cloud = images(network)
    rows = torch.arange(2, 24)
    inputs, labels = cloud[rows]
    with frozen(network):
        for attack in small(ball, 4):
            together = attack(network, inputs, labels, RowRng(0, rows)).points
            alone = attack(network, inputs[7:8], labels[7:8], RowRng(0, rows[7:8])).points
            assert torch.allclose(together[7:8], alone, atol=1e-5)


def test_a_selection_is_attacked_as_in_the_whole() -> None:
    network = convolution()
    examples, ball, some = images(network), L2(0.5), torch.tensor([20, 3, 11, 7])
    attacks = small(ball, 10)
    whole = autoattack(network, examples, ball, attacks, rows=some)
    selected = autoattack(network, Subset(examples, some), ball, attacks)
    assert torch.equal(selected.points, whole.points)
    assert selected.rows.tolist() == [0, 1, 2, 3]


class Noisy(nn.Module):
    """Right by far in the mean, and often wrong by chance."""

    def forward(self, points: Tensor) -> Tensor:
        lead = 1 + 2 * torch.randn(len(points), device=points.device) + 0 * points.sum(1)
        return torch.stack([lead, -lead], 1)


def test_no_point_is_broken_by_a_lucky_draw() -> None:
    cloud = Dataset(torch.rand(60, 3), torch.zeros(60, dtype=torch.long))
    found = autoattack(Single(at_input(Noisy())), cloud, Linf(1e-6), small(Linf(1e-6), 2))
    assert found.draws is not None
    assert found.draws.verification >= 64
    assert found.accuracy == found.robust_accuracy == 1.0


def test_leaves_the_network_as_it_was() -> None:
    network = convolution()
    network.train()
    next(network.parameters()).requires_grad_(False)
    cloud = images(network, 8)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    flags = [parameter.requires_grad for parameter in network.parameters()]
    modes = [module.training for module in network.modules()]
    with torch.no_grad():
        autoattack(network, cloud, Linf(0.02), small(Linf(0.02), 10))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert [parameter.requires_grad for parameter in network.parameters()] == flags
    assert [module.training for module in network.modules()] == modes
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not any("forward" in vars(module) for module in network.modules())


@pytest.mark.parametrize("classes", [2, 3, 4, 10])
@pytest.mark.parametrize("features", [2, 7])
def test_few_classes_and_rows_of_features(classes: int, features: int) -> None:
    torch.manual_seed(0)
    network = Single(at_input(MLP(features, 16, classes)))
    inputs = torch.randn(20, features, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        cloud = Dataset(inputs, network(inputs).argmax(1))
    for ball in (Linf(0.5, OPEN), L2(0.5, OPEN), L1(0.5, OPEN)):
        found = autoattack(network, cloud, ball, small(ball, classes))
        assert found.accuracy == 1
        assert len(found.attacks) == 4
        assert sum(found.counts.values()) + int(found.standing.sum()) == 20


class _Planted(nn.Module):
    """Right everywhere but beyond a plane that is near for some points only, or where it has no answer."""

    def __init__(self, answer: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.answer = answer

    def forward(self, points: Tensor) -> Tensor:
        lead = self.scale * (points.mean(1) - 0.6)
        other = torch.where(lead > 0, self.answer, lead)
        return torch.stack([torch.zeros_like(lead), other], 1)


@pytest.mark.parametrize("answer", [1.0, float("nan")])
def test_planted_weak_points_and_answers_that_are_no_numbers(answer: float) -> None:
    network = Single(at_input(_Planted(answer)))
    inputs = torch.full((6, 9), 0.5)
    inputs[3:] = 0.3
    cloud = Dataset(inputs, torch.zeros(6, dtype=torch.long))
    found = autoattack(network, cloud, Linf(0.15), small(Linf(0.15), 2, steps=30))
    assert found.broken_by.tolist() == [1, 1, 1, ROBUST, ROBUST, ROBUST]
    assert torch.equal(found.points[3:], inputs[3:])
    assert found.counts == {"clean": 0, "apgd-ce": 3, "apgd-margin": 0, "fab-t (1 targets)": 0, "square": 0}
    for attack in small(Linf(0.15), 2, steps=30)[1:]:
        assert autoattack(network, cloud, Linf(0.15), [attack]).broken_by.tolist() == [1, 1, 1, *[ROBUST] * 3]


def test_errors_are_a_sentence() -> None:
    network = convolution()
    cloud = images(network)
    with pytest.raises(ValueError, match="points must lie in the box"):
        autoattack(network, Dataset(cloud.points + 1, cloud.labels), Linf(0.1))
    with pytest.raises(ValueError, match="at least one example"):
        autoattack(network, cloud, Linf(0.1), rows=torch.arange(0))
    with pytest.raises(ValueError, match="at least one batch"):
        Attacked.joined([])
    assert int((autoattack(network, cloud, Linf(0.1), []).broken_by == CLEAN).sum()) == 2


@pytest.mark.parametrize(("norm", "radius"), [("Linf", 0.02), ("L2", 0.1)])
def test_no_weaker_than_pyautoattack(norm: str, radius: float) -> None:
    outside = pytest.importorskip("pyautoattack")
    network = convolution()
    cloud = images(network, 40)
    ball: Ball = {"Linf": Linf, "L2": L2}[norm](radius)
    whole = autoattack(network, cloud, ball, standard(ball, 10)[:3], rows=torch.arange(2, 40))
    network.eval()
    other = outside.AutoAttack(network, norm=norm, eps=radius, seed=0)
    other.attacks_to_run = ["apgd-ce", "apgd-t", "fab-t"]
    found, _ = other.run_standard_evaluation(cloud.points[2:], cloud.labels[2:])
    with torch.no_grad():
        standing = network(found).argmax(1) == cloud.labels[2:]
    assert 0 < int(standing.sum()) < 38
    assert int(whole.standing.sum()) <= int(standing.sum())
    assert int((whole.standing != standing).sum()) <= 1
