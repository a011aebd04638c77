from pathlib import Path

import pytest
import torch
from torch import nn

from small_audits import config, target
from widemargin.auditing.runner import audit
from widemargin.auditing.target import AuditTarget
from widemargin.measure.diagnostics import DIAGNOSES
from widemargin.report.audit_page import page
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single

pytestmark = pytest.mark.usefixtures("one_thread")


class NoWayBack(torch.autograd.Function):
    @staticmethod
    def forward(context: object, points: torch.Tensor) -> torch.Tensor:
        return points.clone()

    @staticmethod
    def backward(context: object, *gradients: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no way\nback")


def test_attacks_and_diagnoses_that_fail_are_findings(tmp_path: Path) -> None:

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = next(one for one in target().network.modules() if isinstance(one, nn.Linear))

        def forward(self, points: torch.Tensor) -> torch.Tensor:
            return self.linear(NoWayBack.apply(points))

    odd = AuditTarget(Single(at_input(Odd())), "odd", "odd", target().examples, "points")
    found = audit(odd, config(points=6, seed=3, diagnoses=DIAGNOSES), tmp_path)
    assert found is not None
    told = {one.name: one for one in found.findings if "RuntimeError: no way back" in one.evidence}
    assert {"apgd-ce", "apgd-t (3 targets)", "FMN-T", "gradients", "rising", "more steps"} <= set(told)
    assert told["apgd-ce"].evidence.startswith("it failed, so it is left out of robust accuracy: ")
    assert "square" not in told
    assert found.failed == ("apgd-ce", "apgd-t (3 targets)")
    assert "square" in found.led
    assert "under AutoAttack without apgd-ce, apgd-t (3 targets)" in page(found).summary
    assert "apgd-ce" not in found.summary()["robust"][0]["attacks"]
    assert [one.name for one in found.contributions if one.run_on is None] == list(found.failed)
    (table,) = [table for table in page(found).tables if table.title == "Successes of each attack"]
    assert [row[0] for row in table.rows if row[1] == "failed"] == list(found.failed)
    assert sum(found.broken_by["square"]) > 0, "what needs no gradient breaks some"
