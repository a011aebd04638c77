"""A surrogate learns what the network answers, and gives away what hidden gradients hide."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from widemargin import L2, OPEN, Dataset, Linf, Single, at_input
from widemargin.measure.diagnostics import broken_by, stood_in
from widemargin.measure.surrogate import UPDATES, Surrogate, fooled, surrogate
from widemargin.networks.mlp import MLP
from widemargin.perturb.balls import Ball
from widemargin.perturb.pgd import PGD
from widemargin.rng import Rng
from widemargin.uncertainty.network import Network

TABLE = Dataset(Rng.seeded(0).normal(torch.empty(200, 3)) * torch.tensor([1.0, 100.0, 0.01]), torch.arange(200) % 2)
IMAGES = Dataset(Rng.seeded(0).uniform(torch.empty(200, 1, 8, 8)), torch.arange(200) % 2)


class Masked(nn.Module):
    """Linear in scaled features, rounded so finely that the class is as good as unchanged and no gradient is left."""

    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale)

    def forward(self, points: Tensor) -> Tensor:
        lead = (points.flatten(1) / self.scale).sum(1, keepdim=True)
        lead = (20 * lead).round() / 20
        return torch.cat([lead, -lead], 1)


def masked(cloud: Dataset) -> tuple[Network, Dataset]:
    scale = cloud.points.flatten(1).std(0)
    center = cloud.points - cloud.points.mean(0)
    network = Single(at_input(Masked(scale))).eval()
    return network, Dataset(center, network(center).argmax(1))


@pytest.mark.parametrize(
    ("cloud", "ball", "kind"),
    [(TABLE, L2(0.02, OPEN), "MLP"), (IMAGES, Linf(0.05, OPEN), "LeNet")],
    ids=["table", "images"],
)
def test_it_breaks_what_hides_its_gradients(cloud: Dataset, ball: Ball, kind: str) -> None:
    network, points = masked(cloud)
    white = broken_by(network, points, PGD(ball, 20))
    assert not white.any(), "the plant: there is no gradient"
    found = surrogate(network, points, ball)
    assert (found.kind, found.updates) == (kind, UPDATES)
    assert found.agreement > 0.9
    distance = fooled(network, points, ball, found)
    broken = distance < torch.inf
    assert int(broken.sum()) > 5
    assert bool((distance[broken] <= ball.radius * (1 + 1e-5)).all())
    # The lead falls by at most slope x distance, and a rounding of 1/40 may help.
    lead = network.logits(network.encode(points.points))[0].amax(1)
    slope = float(
        ball.dual_norm(torch.ones(1, 1).div(points.points.flatten(1).std(0)).view(1, *points.points.shape[1:]))
    )
    assert bool((lead[broken] <= slope * distance[broken] + 0.026).all()), "no distance is shorter than is possible"
    finding = stood_in(white, broken, found.kind, found.agreement)
    assert finding.verdict == "wrong"
    assert finding.numbers["gain"] == float(broken.double().mean())
    assert f"{found.agreement:.1%}" in finding.evidence


def test_an_honest_network_loses_nothing_to_it() -> None:
    points = Rng.seeded(3).normal(torch.empty(120, 2))
    labels = (points[:, 0] > points[:, 1].sin()).long()
    with Rng.seeded(0).as_global():
        module = MLP(2, 16, 2)
    optimizer = torch.optim.Adam(module.parameters(), 0.02)
    for _ in range(100):
        optimizer.zero_grad()
        cross_entropy(module(points), labels).backward()
        optimizer.step()
    network, cloud, ball = Single(at_input(module)).eval(), Dataset(points, labels), L2(0.3, OPEN)
    white = broken_by(network, cloud, PGD(ball, 50))
    found = surrogate(network, cloud, ball)
    broken = fooled(network, cloud, ball, found) < torch.inf
    assert int((broken & white).sum()) > 5, "it finds something"
    assert not (broken & ~white).any()
    assert stood_in(white, broken, found.kind, found.agreement).verdict == "fine"


def test_its_work_is_bounded_and_it_is_the_same_every_time() -> None:
    wide, many = masked(Dataset(Rng.seeded(0).normal(torch.empty(20, 40_000)), torch.arange(20) % 2))
    assert surrogate(wide, many, L2(0.02, OPEN)).updates == 30
    network, points = masked(TABLE)
    once, again = (surrogate(network, points, L2(0.02, OPEN), seed=4) for _ in range(2))
    assert torch.equal(once.network(points.points), again.network(points.points))


def test_points_that_the_surrogate_gets_wrong_are_not_tried() -> None:
    network, points = masked(TABLE)
    never = Single(at_input(nn.Sequential(nn.Linear(3, 2), nn.Threshold(1e9, 0.0)))).eval()
    distance = fooled(network, points, L2(0.02, OPEN), Surrogate(never, "MLP", 0.5, 0))
    assert not (distance < torch.inf)[points.labels == 1].any()
