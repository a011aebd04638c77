"""A norm defined here alone: every search and every attack takes it, and what cannot says so."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import widemargin as wm
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.runner import audit
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Origin
from widemargin.measure.certified import certified
from widemargin.measure.distance import distances
from widemargin.perturb.balls import OPEN, UNIT, Ball, norms
from widemargin.perturb.square import Square
from widemargin.perturb.suites import standard
from widemargin.report.audit_page import page
from widemargin.rng import Rng, RowRng
from widemargin.testing import assert_ball, assert_method

WEIGHTS = (1.0, 2.0, 0.5, 4.0)


@dataclass(frozen=True)
class Weighted(Ball):
    """l2 with a weight for each feature."""

    def norm(self, delta: Tensor) -> Tensor:
        return (delta * torch.tensor(WEIGHTS)).norm(dim=1)

    def dual_norm(self, gradient: Tensor) -> Tensor:
        return (gradient / torch.tensor(WEIGHTS)).norm(dim=1)

    def steepest(self, gradient: Tensor) -> Tensor:
        up = gradient / torch.tensor(WEIGHTS) ** 2
        return up / self.norm(up)[:, None].clamp_min(1e-30)

    def project(self, delta: Tensor, center: Tensor, radii: Tensor | None = None) -> Tensor:
        radius = self.radius if radii is None else radii
        shrink = (radius / self.norm(delta).clamp_min(1e-30)).clamp_max(1.0)
        return self.box.clamp(delta * shrink[:, None], center)

    def sample(self, center: Tensor, rng: Rng) -> Tensor:
        return self.box.clamp(self.steepest(rng.normal(center)) * self.radius, center)


def line() -> tuple[wm.Single, wm.Dataset, Tensor]:
    """Two classes, of which every distance is known."""
    layer = nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0, 0, 0], [1, -1, 2, 1]]))
        layer.bias.copy_(torch.tensor([0.0, -1.4]))
    points = torch.rand(30, 4, generator=torch.Generator().manual_seed(0))
    lead = layer(points)[:, 1].detach()
    way = torch.tensor([1.0, -1, 2, 1])
    return (
        wm.Single(wm.at_input(layer)),
        wm.Dataset(points, (lead > 0).long()),
        lead.abs() / Weighted(1).dual_norm(way[None]),
    )


def test_it_is_among_the_norms_by_its_name() -> None:
    assert norms()["weighted"] is Weighted
    assert Weighted(1.0).name == "weighted"
    assert list(norms())[:3] == ["linf", "l2", "l1"]


def test_margins_are_the_known_ones() -> None:
    network, cloud, known = line()
    assert torch.allclose(distances(network, cloud, Weighted, OPEN).distance, known, rtol=1e-3)


@pytest.mark.parametrize("box", [OPEN, UNIT], ids=repr)
def test_attacks_break_whoever_is_within_reach_and_stay_in_the_ball(box: wm.Box) -> None:
    network, cloud, known = line()
    ball = Weighted(0.2, box)
    rng = RowRng(0, torch.arange(len(cloud)))
    for attack in standard(ball, 2):
        moved = attack(network.requires_grad_(False), cloud.points, cloud.labels, rng).delta
        assert bool((ball.norm(moved) <= 0.2001).all())
        assert torch.equal(ball.box.clamp(moved, cloud.points), moved)
        broken = network(cloud.points + moved).argmax(1) != cloud.labels
        if box == OPEN:
            assert torch.equal(broken, known < 0.2), attack.name


def test_it_holds() -> None:
    assert_ball(Weighted, features=4)


def test_a_method_trains_with_it() -> None:
    assert_method(wm.pgd(Weighted(0.3, OPEN), 0.1, 5), features=4)


def test_an_audit_prints_it(tmp_path: Path) -> None:
    network, cloud, known = line()
    examples = wm.Dataset(cloud.points, cloud.labels, ("a", "b"), Origin("memory", "digest"))
    target = AuditTarget(network, "line", "line", examples, "points")
    result = audit(target, AuditConfig((Weighted(0.1, OPEN), Weighted(0.2, OPEN)), points=30), tmp_path)
    assert result is not None
    assert [robust.count for robust in result.robust] == [int((known > radius).sum()) for radius in (0.1, 0.2)]
    assert "No certified bounds: a certificate is for a ball of Linf, L2 or L1" in " ".join(result.notes)
    assert not result.failed
    assert {"more steps", "large radius", "rising"} <= {finding.name for finding in result.findings}
    assert result.summary()["margin"]["norm"] == "weighted"
    assert "weighted" in page(result).html()


def test_what_knows_only_l_p_norms_says_so() -> None:
    network, cloud, _ = line()
    with pytest.raises(
        ValueError, match=r"^Square knows the norms linf, l2 and l1, got Weighted\(radius=0.1, box=UNIT\)"
    ):
        Square(Weighted(0.1))
    with pytest.raises(ValueError, match=r"^a certificate is for a ball of Linf, L2 or L1, got Weighted"):
        certified(network, cloud, Weighted(0.1))


@pytest.mark.parametrize(("norm", "reach"), [(wm.Linf, math.sqrt(4)), (wm.L2, 1.0), (wm.L1, 1.0), (Weighted, 1.0)])
def test_the_largest_l2_length_in_the_unit_ball(norm: type[Ball], reach: float) -> None:
    like = torch.zeros(3, 4)
    assert norm(1.0).l2_reach(like) == reach
    if norm is not Weighted:
        assert Ball.l2_reach(norm(1.0), like) == pytest.approx(reach)
