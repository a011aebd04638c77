from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from small_audits import CONFIG, audited, config, target
from widemargin.auditing.chunks import write_chunk
from widemargin.auditing.measuring import measured_chunk, unattacked
from widemargin.auditing.result import Audit
from widemargin.auditing.runner import audit
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Dataset, Examples, Origin, Subset
from widemargin.perturb.balls import Ball
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.single import Single

pytestmark = pytest.mark.usefixtures("one_thread")


class Stairs(nn.Module):
    """Without gradients, so that only what is drawn decides what is found.

    Without matrix products: their rounding depends on how many rows are computed at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(4, 5, generator=torch.Generator().manual_seed(1)))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return ((4 * points).round()[:, None] * self.weight).sum(-1)


def stairs() -> AuditTarget:
    network = Single(at_input(Stairs()))
    points = target().examples.points
    examples = Dataset(points, network(points).argmax(1), tuple("abcd"), Origin("memory", "digest"))
    return AuditTarget(network, "stairs", "stairs", examples, "points")


def test_a_row_gets_the_same_record_in_every_selection(tmp_path: Path) -> None:
    """Other chunks, other neighbours, another place in the chunk: what is drawn follows from the row."""
    balls = CONFIG.balls[:2]
    fewer, more = (
        audit(stairs(), config(balls, points, seed=3, chunk=chunk), tmp_path / str(points))
        for points, chunk in ((7, 4), (10, 10))
    )
    assert fewer is not None
    assert more is not None
    at = [more.points["row"].tolist().index(row) for row in fewer.points["row"]]
    for name, values in fewer.points.items():
        assert np.array_equal(values, more.points[name][at], equal_nan=True), name
    # The same points as other rows: something is drawn at all.
    order = torch.arange(60).flip(0)
    turned = AuditTarget(stairs().network, "stairs", "stairs", stairs().examples.take(order), "points")
    rows = 59 - torch.from_numpy(fewer.points["row"])
    other = measured_chunk(turned, config(balls, seed=3), rows, certify=None).points
    assert np.array_equal(other["label"], fewer.points["label"])
    assert not np.array_equal(other["margin"], fewer.points["margin"])


@pytest.mark.parametrize("wrong", ["fails", "is refuted"])
def test_certificates_that_do_not_hold_are_a_finding(wrong: str, whole: Audit, tmp_path: Path) -> None:
    def proof(network: Network, examples: Examples, ball: Ball, on_progress: object = None) -> torch.Tensor:
        if wrong == "fails":
            raise IndexError("no such layer")
        return torch.full((len(examples),), ball.radius, dtype=torch.float64)

    place = tmp_path / target().key(CONFIG)
    place.mkdir()
    for rows in CONFIG.chunks(60):
        write_chunk(place, measured_chunk(target(), CONFIG, rows, certify=proof))
    found = audited(tmp_path)
    (finding,) = (one for one in found.findings if one.name == "certificates")
    assert ("IndexError: no such layer" if wrong == "fails" else "does not hold") in finding.evidence
    assert found.certified is None
    assert [one.count for one in found.robust] == [one.count for one in whole.robust]


def test_of_points_that_are_not_attacked_the_answers_are_known(whole: Audit) -> None:
    known = unattacked(target(), Subset(target().examples, torch.from_numpy(whole.points["row"])))
    for name in ("row", "label", "answer"):
        assert np.array_equal(known[name], whole.points[name])
    wrong = known["answer"] != known["label"]
    assert np.array_equal(known["margin"] == 0, wrong)
    assert np.isnan(known["margin"][~wrong]).all()
