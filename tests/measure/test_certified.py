import copy
from collections.abc import Callable
from itertools import product
from math import inf

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin import L1, L2, OPEN, Dataset, Linf, Single, at_input
from widemargin.measure.certified import bounds, certified, certified_radius
from widemargin.measure.certified.layers import (
    Add,
    Average,
    Conv,
    Interval,
    Layer,
    Linear,
    MaxPool,
    ReLU,
    Reshape,
    Scale,
)
from widemargin.measure.certified.reading import read
from widemargin.measure.certified.region import Region
from widemargin.networks.lenet import LeNet
from widemargin.networks.mlp import MLP
from widemargin.networks.resnet import DropoutResNet18, PreActResNet18
from widemargin.perturb.balls import UNIT, Ball, Box
from widemargin.rng import Rng
from widemargin.uncertainty.cuts import before_head
from widemargin.uncertainty.ensemble import Ensemble

pytestmark = pytest.mark.usefixtures("untyped_tracing")
NORMS = (Linf, L2, L1)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return Rng.seeded(seed).normal(torch.empty(*shape, dtype=torch.float64))


class Residual(nn.Module):
    """Somebody's own network, with what a tracer must cope with."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding="same", groups=2)
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer("mean", torch.tensor([0.3, 0.6])[:, None, None])
        self.last = nn.Linear(16, 3)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.conv1((images - self.mean) / 0.5)
        hidden = hidden + self.conv2(F.relu(self.norm(hidden)))
        hidden = F.max_pool2d(F.relu(hidden, inplace=True), 3, stride=2, padding=1)
        hidden += 0.1
        hidden = F.dropout(hidden, training=self.training)
        return self.last(hidden.view(hidden.size(0), -1))


MAKERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: MLP(3, 12, 8, 3), (3,)),
    "residual": (Residual, (2, 4, 4)),
    "max-pooling": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(3, 3)
        ),
        (1, 6, 6),
    ),
    "norms": (
        lambda: nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)
        ),
        (4,),
    ),
    "lenet": (lambda: LeNet(3, 1, 8), (1, 8, 8)),
}


def drawn(name: str, seed: int) -> tuple[nn.Module, Dataset]:
    """A random network with random statistics, and points in the unit box labelled by it."""
    make, shape = MAKERS[name]
    with Rng.seeded(seed).as_global():
        network = make().double()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
                module.weight.data.normal_()
        points = torch.rand(4, *shape, dtype=torch.float64)
    network.eval()
    with torch.no_grad():
        labels = network(points).argmax(1)
    return network, Dataset(points, labels)


def nearest_wrong(network: nn.Module, cloud: Dataset, ball: Ball, seed: int) -> Tensor:
    """An upper bound on each robust radius: the nearest wrong point that gradients, corners and samples find."""
    best = torch.full((len(cloud),), inf, dtype=torch.float64)

    def look(delta: Tensor) -> None:
        wrong = network(cloud.points + delta).argmax(1) != cloud.labels
        best[wrong] = best[wrong].minimum(ball.norm(delta)[wrong])

    with torch.no_grad():
        for draw in range(10):
            rng = Rng.seeded(seed, draw)
            away = ball.steepest(rng.normal(cloud.points)) if draw % 2 else ball.sample(cloud.points, rng)
            for length in (0.03, 0.1, 0.3, 1.0):
                look(ball.box.clamp(away * length * (1 if draw % 2 else 1 / ball.radius), cloud.points))
    for radius in (0.02, 0.05, 0.1, 0.2, 0.4):
        reach, delta = type(ball)(radius, ball.box), torch.zeros_like(cloud.points)  # type: ignore[call-arg]
        for _ in range(8):
            at = (cloud.points + delta).requires_grad_()
            (slope,) = torch.autograd.grad(F.cross_entropy(network(at), cloud.labels, reduction="sum"), at)
            delta = reach.project(delta + 0.2 * radius * ball.steepest(slope), cloud.points)
            with torch.no_grad():
                look(delta)
    return best


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", MAKERS)
def test_no_attack_succeeds_within_a_certified_radius(name: str, norm: type) -> None:
    positive = 0
    for seed in range({"mlp": 3, "residual": 2}.get(name, 1)):
        network, cloud = drawn(name, seed)
        box = (UNIT, OPEN, Box((0.0,) * cloud.points[0].numel(), 1.5))[seed]
        radius = certified_radius(network, cloud, norm(1.0, box))
        attacked = nearest_wrong(network, cloud, norm(1.0, box), seed)
        assert (radius <= attacked).all(), (seed, radius, attacked)
        positive += int((radius > 1e-3).sum())
    assert positive > 0


@pytest.mark.parametrize("norm", NORMS)
def test_a_box_can_only_help(norm: type) -> None:
    for name in ("mlp", "residual", "norms"):
        network, cloud = drawn(name, 1)
        free, boxed = (certified(network, cloud, norm(0.05, box)) for box in (OPEN, UNIT))
        assert (boxed | ~free).all()


@pytest.mark.parametrize("norm", NORMS)
def test_exact_for_a_linear_network(norm: type) -> None:
    weight, points = normal(4, 5, seed=1), normal(20, 5, seed=2)
    layer = nn.Linear(5, 4).double()
    layer.weight.data.copy_(weight)
    logits = layer(points).detach()
    labels = logits.argmax(1)
    # Two layers with no bend between them are still one line.
    for network in (layer, nn.Sequential(layer, nn.Flatten(), nn.Linear(4, 4).double())):
        if network is not layer:
            network[2].weight.data.copy_(2 * torch.eye(4))
            network[2].bias.data.zero_()
        steep = norm(1.0).dual_norm((weight[labels][:, None] - weight[None]).flatten(0, 1)).view(20, 4)
        distance = (logits.gather(1, labels[:, None]) - logits) / steep
        true = distance.nan_to_num(inf).scatter(1, labels[:, None], inf).amin(1)
        found = certified_radius(network, Dataset(points, labels), norm(100.0, OPEN))
        assert torch.allclose(found, true, atol=1e-4, rtol=1e-4)
        assert (found <= true).all()


def test_exact_where_a_concave_lead_is_lowest_at_an_end() -> None:
    """One input, a hidden layer, and a lead that falls with every ReLU: all chords touch at the ends together."""
    weight, bias = normal(6, 1, seed=3), normal(6, seed=4)
    network = nn.Sequential(nn.Linear(1, 6), nn.ReLU(), nn.Linear(6, 2)).double()
    network[0].weight.data.copy_(weight)
    network[0].bias.data.copy_(bias)
    network[2].weight.data.copy_(torch.stack([torch.zeros(6), normal(6, seed=5).abs()]))
    network[2].bias.data.copy_(torch.tensor([4.0, 0.0]))
    points = torch.linspace(-0.5, 0.5, 7, dtype=torch.float64)[:, None]
    found = certified_radius(network, Dataset(points, torch.zeros(7, dtype=torch.int64)), Linf(100.0, OPEN))
    grid = torch.linspace(-20, 20, 400_001, dtype=torch.float64)[:, None]
    with torch.no_grad():
        wrong = grid[network(grid).argmax(1) == 1]
    true = (points - wrong.T).abs().amin(1)
    assert (found <= true + 1e-4).all()
    assert (found >= 0.975 * true).all()


def test_exact_for_one_relu_by_its_corners() -> None:
    weight = normal(1, 4, seed=7)
    network = nn.Sequential(nn.Linear(4, 1), nn.ReLU(), nn.Linear(1, 2)).double()
    network[0].weight.data.copy_(weight)
    network[2].weight.data.copy_(torch.tensor([[0.0], [1.0]]))
    network[2].bias.data.copy_(torch.tensor([1.0, 0.0]))
    points = 0.1 * normal(5, 4, seed=8)
    cloud = Dataset(points, torch.zeros(5, dtype=torch.int64))
    corners = torch.tensor(list(product((-1.0, 1.0), repeat=4)), dtype=torch.float64)
    for radius in (0.1, 0.2, 0.3, 0.5, 1.0):
        with torch.no_grad():
            true = (network((points[:, None] + radius * corners).flatten(0, 1)).argmax(1) == 0).view(5, -1).all(1)
        assert torch.equal(certified(network, cloud, Linf(radius, OPEN)), true)


PRIMITIVES: list[tuple[Layer, int, Callable[..., Tensor], tuple[int, ...]]] = [
    (Linear(normal(3, 5), normal(3)), 1, lambda x: F.linear(x, normal(3, 5), normal(3)), (5,)),
    (
        Conv(normal(4, 1, 3, 3), normal(4), (2, 2), (1, 1), (1, 1), 2),
        1,
        lambda x: F.conv2d(x, normal(4, 1, 3, 3), normal(4), 2, 1, 1, 2),
        (2, 6, 5),
    ),
    (
        Conv(normal(4, 2, 3), None, (1,), (2,), (2,), 1),
        1,
        lambda x: F.conv1d(x, normal(4, 2, 3), None, 1, 2, 2),
        (2, 7),
    ),
    (Scale(normal(3, 1), normal(3, 1, seed=1)), 1, lambda x: x * normal(3, 1) + normal(3, 1, seed=1), (3, 4)),
    (Average(nn.AvgPool2d(3, 2, 1)), 1, lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 5, 5)),
    (Average(nn.AdaptiveAvgPool2d(1)), 1, lambda x: x.mean((2, 3), keepdim=True), (2, 5, 5)),
    (Reshape((8,)), 1, lambda x: x.flatten(1), (2, 4)),
    (Add(), 2, lambda x, y: x + y, (4,)),
    (Add(-1), 2, lambda x, y: x - y, (4,)),
    (ReLU(), 1, torch.relu, (9,)),
    (MaxPool((2, 2), (2, 2), (0, 0)), 1, lambda x: F.max_pool2d(x, 2), (2, 4, 6)),
    (MaxPool((2, 2), (2, 2), (0, 0)), 1, lambda x: F.max_pool2d(x, 2), (2, 5, 5)),
    (MaxPool((3, 3), (2, 2), (1, 1)), 1, lambda x: F.max_pool2d(x, 3, 2, 1), (2, 5, 6)),
    (MaxPool((2, 3), (1, 2), (1, 0)), 1, lambda x: F.max_pool2d(x, (2, 3), (1, 2), (1, 0)), (1, 4, 5)),
]


@pytest.mark.parametrize(("layer", "takes", "function", "shape"), PRIMITIVES, ids=lambda value: type(value).__name__)
def test_bounds_of_a_layer_hold_wherever_its_sources_are(
    layer: Layer, takes: int, function: Callable[..., Tensor], shape: tuple[int, ...]
) -> None:
    for seed in range(5):
        sources, samples = [], []
        for number in range(takes):
            middle, width = normal(1, *shape, seed=10 * seed + number), normal(1, *shape, seed=seed + 5).abs()
            sources.append(Interval(middle - width, middle + width))
            share = torch.rand(500, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
            samples.append(middle + width * (2 * share - 1).sign() * share.roll(1, 0).clamp_min(share.round()))
        outputs = function(*samples)
        interval = layer.interval(*sources)
        assert (outputs >= interval.low - 1e-12).all()
        assert (outputs <= interval.high + 1e-12).all()
        rows = normal(6, *outputs.shape[1:], seed=seed)
        coefficients, constants = layer.substitute(rows, *sources)
        below = constants + sum(
            sample.flatten(1) @ part.flatten(1).T for sample, part in zip(samples, coefficients, strict=True)
        )
        assert (below <= outputs.flatten(1) @ rows.flatten(1).T + 1e-9).all()
        if not isinstance(layer, ReLU | MaxPool):
            assert torch.allclose(below, outputs.flatten(1) @ rows.flatten(1).T)


@pytest.mark.parametrize("norm", NORMS)
def test_all_values_stay_in_their_intervals(norm: type) -> None:
    network, cloud = drawn("residual", 3)
    region = Region.around(cloud.points[0], norm(0.3))
    known = read(network, cloud.points).intervals(region)[-1]
    center = cloud.points[:1].expand(2000, -1, -1, -1)
    with torch.no_grad():
        logits = network(center + norm(0.3).sample(center, Rng.seeded(1)))
    assert (logits >= known.low).all()
    assert (logits <= known.high).all()


@pytest.mark.parametrize("norm", NORMS)
def test_windows_of_an_image_give_the_bounds_of_the_whole(norm: type, monkeypatch: pytest.MonkeyPatch) -> None:
    with Rng.seeded(1).as_global():
        network = nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(2, 3, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(3, 2, 2), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(50, 3),
        ).double().eval()  # fmt: skip
    point = torch.rand(1, 24, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    region = Region.around(point, norm(0.1))
    tiled, whole = (read(network, point.expand(2, -1, -1, -1)) for _ in range(2))
    found = tiled.intervals(region)
    assert any(tile for _, _, tile in tiled._upstream.values())
    monkeypatch.setattr(bounds, "_TILE", 100)
    expected = whole.intervals(region)
    assert not whole._upstream[4][2]
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one.low, other.low, rtol=0, atol=1e-12)
        assert torch.allclose(one.high, other.high, rtol=0, atol=1e-12)


def test_a_linear_layer_may_see_rows_of_an_image() -> None:
    with Rng.seeded(1).as_global():
        network = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)).double()
        points = torch.rand(4, 2, 4, 4, dtype=torch.float64)
    cloud = Dataset(points, network(points).argmax(1))
    for norm in NORMS:
        radius = certified_radius(network, cloud, norm(1.0))
        assert (radius > 0).all()
        assert (radius <= nearest_wrong(network, cloud, norm(1.0), 0)).all()


def test_monotone_in_the_radius() -> None:
    for name in ("mlp", "residual", "norms"):
        network, cloud = drawn(name, 0)
        answers = torch.stack([certified(network, cloud, Linf(r)) for r in (0.0, 0.01, 0.03, 0.1)])
        assert (answers[1:] <= answers[:-1]).all()
        radius = certified_radius(network, cloud, Linf(1.0))
        assert all(
            bool(certified(network, Dataset(point[None], label[None]), Linf(0.7 * float(r)))[0])
            for point, label, r in zip(cloud.points, cloud.labels, radius, strict=True)
        )


def test_a_point_does_not_depend_on_its_batch_and_the_network_stays_as_it_is() -> None:
    network, cloud = drawn("residual", 0)
    network.train()
    network.conv1.eval()
    before, modes = copy.deepcopy(network.state_dict()), [module.training for module in network.modules()]
    done: list[int] = []
    together = certified_radius(network, cloud, L2(1.0), done.append)
    assert done == [1, 2, 3, 4]
    for row in range(4):
        one = Dataset(cloud.points[row : row + 1], cloud.labels[row : row + 1])
        assert torch.equal(certified_radius(network, one, L2(1.0)), together[row : row + 1])
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert modes == [module.training for module in network.modules()]
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())


def test_a_point_classified_wrong_has_radius_0() -> None:
    network, cloud = drawn("mlp", 0)
    wrong = Dataset(cloud.points, (cloud.labels + 1) % 3)
    assert not certified_radius(network, wrong, Linf(1.0)).any()
    assert not certified(network, wrong, Linf(0.0)).any()


def test_rounding_certifies_nobody() -> None:
    """Large terms cancel: in single precision the network itself does not know who leads."""
    generator = torch.Generator().manual_seed(1)
    proven = 0
    for scale in (1e2, 1e4, 1e6):
        first, last = nn.Linear(20, 30), nn.Linear(30, 2)
        with torch.no_grad():
            for layer in (first, last):
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator))
            first.bias.fill_(scale)
            last.weight[1] = last.weight[0] + 1e-3 * last.weight[1]
            points = torch.randn(25, 20, generator=generator)
            network = nn.Sequential(first, nn.ReLU(), last)
            last.bias[1] += (network(points)[:, 0] - network(points)[:, 1]).median()
            labels = network(points).argmax(1)
            radius = 1e-3
            flags = certified(network, Dataset(points, labels), Linf(radius, OPEN))
            # The linear part decides: its worst corner, a little within, as single precision sees it.
            slope = ((last.weight[0] - last.weight[1]).double() @ first.weight.double()).sign().float()
            sign = (labels == 0).float()[:, None] * 2 - 1
            noise = torch.rand(200, 1, 20, generator=generator) * 2 - 1
            moved = points + radius * torch.cat([(-sign * slope)[None], noise.sign() * slope.abs() * sign.abs()])
            answers = network(moved.flatten(0, 1)).argmax(1).view(len(moved), -1)
            assert (answers == labels)[:, flags].all()
            proven += int(flags.sum())
    assert proven > 5


def test_tighter_than_intervals_on_a_trained_network() -> None:
    points = normal(200, 2, seed=1)
    labels = (points.norm(dim=1) > 1.1).long()
    with Rng.seeded(1).as_global():
        network = MLP(2, 32, 32, 2).double()
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(200):
        optimizer.zero_grad()
        F.cross_entropy(network(points), labels).backward()
        optimizer.step()
    program = read(network, points[:2])

    def by_intervals(point: Tensor, label: int) -> float:
        low, high = 0.0, 2.0
        for _ in range(20):
            middle = (low + high) / 2
            known = [Interval(point[None] - middle, point[None] + middle)]
            for step in program.steps:
                known.append(step.layer.interval(*(known[source] for source in step.sources)))
            lead = known[-1].low[0, label] - known[-1].high[0, 1 - label]
            low, high = (middle, high) if lead > 0 else (low, middle)
        return low

    linear = certified_radius(network, Dataset(points[:15], labels[:15]), Linf(2.0, OPEN))
    plain = torch.tensor([by_intervals(p, int(y)) for p, y in zip(points[:15], labels[:15], strict=True)]).double()
    # Both searches end a little below what they could prove.
    assert (linear >= 0.98 * plain).all(), list(zip(linear.tolist(), plain.tolist(), strict=True))
    assert linear.mean() > 1.5 * plain.mean()


@pytest.mark.parametrize("make", [PreActResNet18, DropoutResNet18])
def test_residual_networks_of_18_layers(make: Callable[..., nn.Module]) -> None:
    with Rng.seeded(1).as_global():
        network, points = make(3, 1, 2), torch.rand(1, 1, 8, 8)
    network.eval()
    cloud = Dataset(points, network(points).argmax(1))
    radius = certified_radius(Single(before_head(network)), cloud, Linf(0.5))
    assert (radius > 0).all()
    for point, label, r in zip(points, cloud.labels, radius, strict=True):
        moved = (point + float(r) * (torch.rand(300, *point.shape) * 2 - 1).sign()).clamp(0, 1)
        assert (network(moved).argmax(1) == label).all()


class Branching(nn.Module):
    def forward(self, points: Tensor) -> Tensor:
        return points if points.sum() > 0 else -points


class Squared(nn.Module):
    def forward(self, points: Tensor) -> Tensor:
        return points * points


def test_what_cannot_be_certified_is_said() -> None:
    cloud = Dataset(torch.rand(2, 3), torch.tensor([0, 1]))

    def refuse(network: nn.Module, said: str) -> None:
        with pytest.raises(ValueError, match=said):
            certified(network, cloud, Linf(0.1))

    refuse(nn.Sequential(nn.Linear(3, 3), nn.Tanh()), "Tanh")
    refuse(Branching(), "traceable")
    refuse(Squared(), "'mul', which is no linear function")
    refuse(nn.BatchNorm1d(3, track_running_stats=False), "mixes the points")
    refuse(Ensemble([Single(at_input(MLP(3, 4, 2))) for _ in range(2)]), "one member")
    hooked = nn.Sequential(nn.Linear(3, 3))
    hooked[0].register_forward_hook(lambda module, given, found: found + 1)
    refuse(hooked, "has hooks")
    with pytest.raises(ValueError, match="lie in the box"):
        certified(MLP(3, 4, 2), Dataset(2 + cloud.points, cloud.labels), Linf(0.1))


def test_bounds_are_the_same_however_a_network_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    # So little that only a part of the features is refined: how many must follow from the network alone.
    monkeypatch.setattr(bounds, "WORK_PER_LAYER", 5000)
    with Rng.seeded(0).as_global():
        first, norm, second, last = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3), nn.Linear(64, 3)
        norm.running_var.uniform_(0.5, 2.0)
        norm.running_mean.normal_()
        points = torch.rand(4, 1, 8, 8)
    folded = nn.utils.fusion.fuse_conv_bn_eval(first.eval(), norm.eval())
    written = nn.Sequential(first, norm, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), last).eval()
    with torch.no_grad():
        cloud = Dataset(points, written(points).argmax(1))
    wanted = certified_radius(written, cloud, Linf(0.5))
    assert bool((wanted > 0).all())
    monkeypatch.setattr(bounds, "WORK_PER_LAYER", 2**25)
    assert bool((certified_radius(written, cloud, Linf(0.5)) > 1.02 * wanted).any())
    monkeypatch.setattr(bounds, "WORK_PER_LAYER", 5000)
    others = (
        Single(at_input(written)),
        nn.Sequential(first, nn.Dropout(), norm, nn.ReLU(), nn.Identity(), second, nn.ReLU(), nn.Flatten(), last),
        nn.Sequential(folded, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Dropout(), last),
    )
    for other in others:
        torch.testing.assert_close(certified_radius(other.eval(), cloud, Linf(0.5)), wanted, rtol=1e-3, atol=0)
