import math
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from small_audits import BALLS, QUESTION, Weak, asked, config, named, subject
from widemargin.auditing import findings
from widemargin.auditing import runner as module
from widemargin.auditing.clock import Clock
from widemargin.auditing.runner import audit
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Dataset, Examples, Origin
from widemargin.measure.diagnostics import DIAGNOSES, Finding, all_findings, suite
from widemargin.perturb.apgd import APGD
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import OPEN, Ball, Linf
from widemargin.report.audit_page import page
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.single import Single

pytestmark = pytest.mark.usefixtures("quick_surrogate", "one_thread")


EVERY = tuple(one.name for one in DIAGNOSES if one.name != "transfer")


def test_a_budget_ends_the_diagnoses_and_they_are_made_whole_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = config(BALLS[:1], points=4, seed=3, diagnoses=DIAGNOSES)
    with monkeypatch.context() as patch:
        patch.setattr(module, "SHARE_OF_FINDINGS", 0.0)
        short = audit(subject(), question, tmp_path, budget=1e6)
    assert short is not None
    names = [finding.name for finding in short.findings]
    assert names[:4] == ["inputs in box", "modes", "probabilities", "randomness"]
    assert short.left_out == (*EVERY[4:5], *EVERY[6:]), "with one radius"
    assert short.summary()["findings_left_out"] == list(short.left_out)
    told = page(short)
    assert "None of the 6 diagnoses, of 12, for which there was time gives a reason" in told.summary
    assert told.verdicts[0].evidence.startswith("the time was up; nothing is known of: gradients, loss surface")
    printed = StringIO()
    told.print(Console(file=printed, width=200))
    for text in (told.html(), printed.getvalue()):
        assert "only 6 of 12 diagnoses were made" in text
    later = audit(subject(), question, tmp_path)
    assert later is not None
    names = [finding.name for finding in later.findings]
    assert len(set(names)) == len(names), "each has a name of its own"
    assert set(names) == {*short.left_out, *(finding.name for finding in short.findings)}, "all that had been named"
    assert later.left_out == later.notes == ()
    assert "None of 12 diagnoses" in page(later).summary


def test_a_budget_ends_a_diagnosis_that_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, whom = 0.0, subject()
    monkeypatch.setattr(module.time, "monotonic", lambda: now)

    def tedious(network: Network, some: Examples, attack: object) -> float:
        nonlocal now
        for _ in range(100):
            network(whom.examples.points)
            now += 1.0
        return 1.0

    monkeypatch.setattr(suite, "robust_accuracy", tedious)
    left_out = findings.diagnosed(
        whom, replace(QUESTION, diagnoses=named("modes", "rising")), tmp_path, Clock(10.0, 0.0), 0.3
    ).left_out
    assert now == 3.0
    assert "rising" in left_out


def test_every_diagnosis_has_its_name() -> None:
    whom = subject()
    made = all_findings(whom.network, whom.examples, Linf(0.1, OPEN), [0.05, 0.1])
    assert tuple(finding.name for finding in made) == EVERY


def test_a_transfer_that_refutes_a_certificate_is_an_error() -> None:
    points = {"breaks": np.array([1, 1]), "by": np.array([-1, -1]), "margin": np.array([np.inf, np.inf])}
    moved = findings.Transferred(np.array([0.05, np.inf]), "MLP", 1.0)
    question = config((Linf(0.1),))
    findings.with_surrogate({**points, "row": np.arange(2), "certified": np.array([np.nan, 0.1])}, moved, question, 0)
    points = {"breaks": np.array([1, 1]), "by": np.array([-1, -1]), "margin": np.array([np.inf, np.inf])}
    with pytest.raises(ValueError, match=r"certified up to 0\.07, but a wrong place was found at 0\.05"):
        findings.with_surrogate({**points, "row": np.arange(2), "certified": np.array([0.07, 0.1])}, moved, question, 0)


def test_whom_a_surrogate_breaks_counts_as_broken(tmp_path: Path) -> None:
    """Rounded so finely that the margins are those of a linear network, and no gradient is left."""

    class Masked(nn.Module):
        def forward(self, points: torch.Tensor) -> torch.Tensor:
            lead = (20 * points.sum(1, keepdim=True)).round() / 20
            return torch.cat([lead, -lead], 1)

    points = subject().examples.points
    examples = Dataset(points, (points.sum(1) < 0).long(), ("a", "b"), Origin("memory", "digest"))
    whom = AuditTarget(Single(at_input(Masked())), "masked", "masked", examples, "points")
    question = config(points=20, seed=3, chunk=20, standard=Weak())
    found = audit(whom, question, tmp_path)
    assert found is not None
    counts = found.broken_by[module.TRANSFER]
    assert sum(counts) > 1, "those that one query of Square's has left"
    (finding,) = (one for one in found.findings if one.name == "transfer")
    assert finding.verdict == "wrong"
    assert finding.numbers["gain"] == pytest.approx(sum(counts) / found.n)
    broken = found.points["by"] == found.attacks.index(module.TRANSFER)
    radii = np.array([ball.radius for ball in QUESTION.balls])
    assert np.all(found.points["margin"][broken] <= radii[found.points["breaks"][broken]] * (1 + 1e-4))
    least = (points[found.points["row"]].sum(1).abs() - 0.026) / math.sqrt(5)
    assert np.all(found.points["margin"] >= least.numpy()), "no margin is shorter than is possible"
    again = audit(whom, question, tmp_path)
    assert again is not None
    assert again.summary() == found.summary(), "made once"


def test_a_surrogate_that_fails_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise IndexError("too few points")

    monkeypatch.setattr(module, "surrogate", failing)
    found = asked(tmp_path)
    (finding,) = (one for one in found.findings if one.name == "transfer")
    assert "IndexError: too few points" in finding.evidence
    assert module.TRANSFER not in found.attacks


def test_without_diagnoses_and_square_nothing_is_said_of_them(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Alone:
        def __call__(self, ball: Ball, classes: int, rows_at_once: int = 0) -> tuple[Attack, ...]:
            return (APGD(ball, steps=20),)

    found = audit(subject(), config(points=6, seed=3, standard=Alone(), diagnoses=()), tmp_path)
    assert found is not None
    assert {one.name for one in found.findings} == {"transfer"}
    assert found.attacks[0] == "apgd-ce"


TWO = config((Linf(0.1), Linf(0.2)))
ALARMS = tuple(
    Finding(name, "wrong", "masked", "do this", {})
    for name in ("gradients", "black box of AutoAttack", "transfer", "modes")
)


@pytest.mark.parametrize(
    ("certified", "is_proven"), [((0.0, 0.1, 0.2), True), ((0.0, 0.1, 0.19), False), ((0.0, np.nan, 0.2), False)]
)
def test_no_alarm_where_each_point_is_broken_or_certified(certified: tuple[float, ...], is_proven: bool) -> None:
    points = {"breaks": np.array([0, 1, 2]), "certified": np.array(certified)}
    found = findings.settled(ALARMS, points, TWO)
    assert [one.verdict for one in found] == (["fine"] * 3 if is_proven else ["wrong"] * 3) + ["wrong"]
    if is_proven:
        assert found[0].evidence.startswith("masked; no reason for doubt, since certificates prove")
        assert found[0].advice == ""
    else:
        assert found == ALARMS
