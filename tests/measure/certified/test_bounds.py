from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certified_cases import NORMS, drawn, normal
from widemargin import OPEN, Dataset, Linf, Single, at_input
from widemargin.measure.certified import certified_radius
from widemargin.measure.certified.layers import Interval
from widemargin.measure.certified.reading import read
from widemargin.measure.certified.region import Region
from widemargin.networks.mlp import MLP
from widemargin.rng import Rng


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
def test_windows_of_an_image_give_the_bounds_of_the_whole(norm: type) -> None:
    with Rng.seeded(1).as_global():
        network = nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(2, 3, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(3, 2, 2), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(50, 3),
        ).double().eval()  # fmt: skip
    point = torch.rand(1, 24, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    region = Region.around(point, norm(0.1))
    tiled = read(network, point.expand(2, -1, -1, -1))
    whole = replace(tiled, tile=100)
    found = tiled.intervals(region)
    assert any(tile for _, _, tile in tiled._upstream.values())
    expected = whole.intervals(region)
    assert not whole._upstream[4][2]
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one.low, other.low, rtol=0, atol=1e-12)
        assert torch.allclose(one.high, other.high, rtol=0, atol=1e-12)


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


def test_bounds_are_the_same_however_a_network_is_written() -> None:
    with Rng.seeded(0).as_global():
        first, norm, second, last = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3), nn.Linear(64, 3)
        norm.running_var.uniform_(0.5, 2.0)
        norm.running_mean.normal_()
        points = torch.rand(4, 1, 8, 8)
    folded = nn.utils.fusion.fuse_conv_bn_eval(first.eval(), norm.eval())
    written = nn.Sequential(first, norm, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), last).eval()

    def widths(network: nn.Module, work: int) -> Tensor:
        program = replace(read(network, points), work_per_layer=work)
        known = [program.intervals(Region.around(point, Linf(0.1)))[-1] for point in points]
        return torch.cat([logits.high - logits.low for logits in known])

    # So little that only a part of the features is refined: how many must follow from the network alone.
    wanted = widths(written, 5000)
    assert bool((widths(written, 2**25) < 0.98 * wanted).any())
    assert bool((wanted < 0.98 * widths(written, 0)).any())
    others = (
        Single(at_input(written)),
        nn.Sequential(first, nn.Dropout(), norm, nn.ReLU(), nn.Identity(), second, nn.ReLU(), nn.Flatten(), last),
        nn.Sequential(folded, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Dropout(), last),
    )
    for other in others:
        torch.testing.assert_close(widths(other.eval(), 5000), wanted, rtol=1e-3, atol=0)
