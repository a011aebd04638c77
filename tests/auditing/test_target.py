from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from small_audits import CONFIG, config, named, target
from widemargin.auditing.result import Audit
from widemargin.auditing.runner import audit
from widemargin.auditing.target import AuditTarget
from widemargin.report.audit_page import page
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single

pytestmark = pytest.mark.usefixtures("one_thread")


def test_chance_that_cannot_be_fixed_is_said(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def forward(self, points: torch.Tensor) -> torch.Tensor:
            return points[:, :4] + torch.empty_like(points[:, :4]).normal_()

    random = AuditTarget(Single(at_input(Odd())), "odd", "odd", target().examples, "points")
    found = audit(random, config(CONFIG.balls[:1], points=4, chunk=4), tmp_path)
    assert found is not None
    assert found.draws is None
    assert "every figure is of single ones" in page(found).settings


def test_a_network_that_answers_with_probabilities_is_measured_by_their_logs_and_told_so(
    whole: Audit, tmp_path: Path
) -> None:
    with_probabilities = replace(CONFIG, diagnoses=named("modes", "probabilities"))
    plain = target()
    linear = next(one for one in plain.network.modules() if isinstance(one, nn.Linear))
    network = Single(at_input(nn.Sequential(linear, nn.Softmax(-1))))
    found = audit(AuditTarget(network, "shares", "shares", plain.examples, "points"), with_probabilities, tmp_path)
    assert found is not None
    (finding,) = (one for one in found.findings if one.name == "probabilities")
    assert finding.verdict == "wrong"
    assert "remove the network's softmax" in finding.advice
    assert "Answers are probabilities: attacks climbed their logs." in found.notes
    assert [one.count for one in found.robust] == [one.count for one in whole.robust], "it is the same classifier"
    assert found.certified is None
    assert "probabilities" in page(found).summary
