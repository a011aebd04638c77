from pathlib import Path

import pytest

from never_asked import CASES, COUNT, LABELS, NORMS, POINTS, RADII, REFUSED, network
from widemargin import Dataset
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.runner import audit
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Origin
from widemargin.perturb.balls import OPEN

CASES += [(norm, radius, "some") for norm in ("l2", "l1") for radius in RADII]


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_a_whole_audit(norm: str, tmp_path: Path) -> None:
    """With the standard's own attacks, as the command line makes it."""
    examples = Dataset(POINTS, LABELS["some"], tuple("abcd"), Origin("memory", "digest"))
    target = AuditTarget(network(), "flattening", "weights", examples, "points")
    balls = tuple(NORMS[norm](radius, OPEN) for radius in (0.1, 0.3))
    found = audit(target, AuditConfig(balls, points=COUNT), tmp_path)
    assert found is not None
    assert not [one.evidence for one in found.findings if REFUSED in one.evidence]
