import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from small_audits import CONFIG, Weak, config, target
from widemargin.auditing.runner import audit
from widemargin.auditing.target import AuditTarget
from widemargin.auditing.transfer import TRANSFER, Transferred, with_surrogate
from widemargin.data.dataset import Dataset, Origin
from widemargin.perturb.balls import Linf
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("proven", [np.nan, 0.07])
def test_a_transfer_that_refutes_a_certificate_is_a_finding(proven: float) -> None:
    points = {"breaks": np.array([1, 1]), "by": np.array([-1, -1]), "margin": np.array([np.inf, np.inf])}
    points |= {"row": np.arange(2), "certified": np.array([proven, 0.1])}
    moved = Transferred(np.array([0.05, np.inf]), "MLP", 1.0)
    found = with_surrogate(points, moved, config((Linf(0.1),)), 0)
    assert points["breaks"].tolist() == [0, 1]
    if math.isnan(proven):
        assert [one.name for one in found] == ["transfer"]
        assert points["certified"][1] == 0.1
    else:
        assert "certified up to 0.07, but a wrong place was found at 0.05" in found[1].evidence
        assert np.isnan(points["certified"]).all()


def test_whom_a_surrogate_breaks_counts_as_broken(tmp_path: Path) -> None:
    """Rounded so finely that the margins are those of a linear network, and no gradient is left."""

    class Masked(nn.Module):
        def forward(self, points: torch.Tensor) -> torch.Tensor:
            lead = (20 * points.sum(1, keepdim=True)).round() / 20
            return torch.cat([lead, -lead], 1)

    points = target().examples.points
    examples = Dataset(points, (points.sum(1) < 0).long(), ("a", "b"), Origin("memory", "digest"))
    whom = AuditTarget(Single(at_input(Masked())), "masked", "masked", examples, "points")
    weak = config(points=20, seed=3, chunk=20, standard=Weak())
    found = audit(whom, weak, tmp_path)
    assert found is not None
    counts = found.broken_by[TRANSFER]
    assert sum(counts) > 1, "those that one query of Square's has left"
    (finding,) = (one for one in found.findings if one.name == "transfer")
    assert finding.verdict == "wrong"
    assert finding.numbers["gain"] == pytest.approx(sum(counts) / found.n)
    broken = found.points["by"] == found.attacks.index(TRANSFER)
    radii = np.array([ball.radius for ball in CONFIG.balls])
    assert np.all(found.points["margin"][broken] <= radii[found.points["breaks"][broken]] * (1 + 1e-4))
    least = (points[found.points["row"]].sum(1).abs() - 0.026) / math.sqrt(5)
    assert np.all(found.points["margin"] >= least.numpy()), "no margin is shorter than is possible"
    again = audit(whom, weak, tmp_path)
    assert again is not None
    assert again.summary() == found.summary(), "made once"


def test_a_surrogate_that_fails_is_a_finding(tmp_path: Path) -> None:
    class Narrow(nn.Module):
        """A surrogate is fitted to the answers at 120 points at once; attacks ask about fewer here."""

        def forward(self, points: torch.Tensor) -> torch.Tensor:
            if len(points) > 100:
                raise IndexError("too many points")
            return points[:, :4]

    whom = AuditTarget(Single(at_input(Narrow())), "narrow", "narrow", target().examples, "points")
    found = audit(whom, config(CONFIG.balls[:1], points=4), tmp_path)
    assert found is not None
    (finding,) = (one for one in found.findings if one.name == "transfer")
    assert "IndexError: too many points" in finding.evidence
    assert TRANSFER not in found.attacks
