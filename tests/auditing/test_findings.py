from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from small_audits import BALLS, CONFIG, config, named, target
from widemargin.auditing import findings
from widemargin.auditing.clock import Clock
from widemargin.auditing.runner import audit
from widemargin.measure.diagnostics import DIAGNOSES, Diagnosis, Examined, Finding, all_findings, modes, randomness
from widemargin.perturb.apgd import APGD
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import OPEN, Ball, Linf
from widemargin.report.audit_page import page

pytestmark = pytest.mark.usefixtures("one_thread")


EVERY = tuple(one.name for one in DIAGNOSES if one.name != "transfer")


def test_a_budget_ends_the_diagnoses_and_they_are_made_whole_later(tmp_path: Path) -> None:
    now = 0.0

    def slow(of: Examined) -> Finding:
        nonlocal now
        now += 4e5
        return randomness(of.network, of.examples)

    diagnoses = tuple(replace(one, make=slow) if one.name == "randomness" else one for one in DIAGNOSES)
    every = config(BALLS[:1], points=4, seed=3, diagnoses=diagnoses)
    short = audit(target(), every, tmp_path, Clock(1e6, 0.0, lambda: now))
    assert short is not None
    names = [finding.name for finding in short.findings]
    assert names[:4] == ["inputs in box", "modes", "probabilities", "randomness"]
    assert short.left_out == (*EVERY[4:5], *EVERY[6:]), "with one radius"
    assert short.summary()["findings_left_out"] == list(short.left_out)
    told = page(short)
    assert "The 6 diagnoses, of 12, for which there was time are fine." in told.summary
    assert told.verdicts[0].evidence.startswith("the budget ran out; not run: gradients, loss surface")
    printed = StringIO()
    told.print(Console(file=printed, width=200))
    for text in (told.html(), printed.getvalue()):
        assert "only 6 of 12 diagnoses were run" in text
    later = audit(target(), every, tmp_path)
    assert later is not None
    names = [finding.name for finding in later.findings]
    assert len(set(names)) == len(names), "each has a name of its own"
    assert set(names) == {*short.left_out, *(finding.name for finding in short.findings)}, "all that had been named"
    assert later.left_out == later.notes == ()
    assert "All 12 diagnoses are fine." in page(later).summary


def test_a_budget_ends_a_diagnosis_that_has_begun(tmp_path: Path) -> None:
    now = 0.0

    def tedious(of: Examined) -> Finding:
        nonlocal now
        for _ in range(100):
            of.network(target().examples.points)
            now += 1.0
        return modes(of.network, of.examples)

    diagnoses = (*named("modes"), Diagnosis("rising", tedious))
    clock = Clock(10.0, 0.0, lambda: now)
    left_out = findings.diagnosed(target(), replace(CONFIG, diagnoses=diagnoses), tmp_path, clock, 0.3).left_out
    assert now == 3.0
    assert "rising" in left_out


def test_every_diagnosis_has_its_name() -> None:
    whom = target()
    made = all_findings(Examined(whom.network, whom.examples, Linf(0.1, OPEN), (0.05, 0.1)))
    assert tuple(finding.name for finding in made) == EVERY


def test_without_diagnoses_and_square_nothing_is_said_of_them(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Alone:
        def __call__(self, ball: Ball, classes: int, rows_at_once: int = 0) -> tuple[Attack, ...]:
            return (APGD(ball, steps=20),)

    found = audit(target(), config(points=6, seed=3, standard=Alone(), diagnoses=()), tmp_path)
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
