import pickle
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import widemargin as wm
from plane_studies import COARSE, check
from widemargin.auditing.config import AuditConfig
from widemargin.measure.margin import Margins
from widemargin.perturb.apgd import APGD
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import Ball
from widemargin.perturb.square import Square
from widemargin_studies import demo, fig3
from widemargin_studies.digits_audit import DigitsAudit


@dataclass(frozen=True)
class Few:
    def __call__(self, ball: Ball, classes: int, rows_at_once: int = 0) -> tuple[Attack, ...]:
        return (APGD(ball, steps=5), Square(ball, queries=5))


def test_it_runs_reports_and_has_nothing_left(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    few = AuditConfig((wm.Linf(0.1),), points=4, chunk=4, standard=Few(), diagnoses=())
    digits = DigitsAudit(wm.Plan(wm.Epochs(1), wm.Adam(2e-3), batch=256), few)
    check(replace(demo.STUDY, seeds=(0, 1), updates=wm.Updates(5), grids=COARSE, digits=digits), tmp_path)


def test_its_jobs_can_be_sent_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(demo.STUDY)) == demo.STUDY


def test_the_summary_names_the_method_with_the_widest_margin() -> None:
    def margins(worst: float) -> Margins:
        return Margins(np.array([worst, 2.0]), np.array([1.0, 1.0]))

    corridor = {"UDP-near": [margins(0.5), margins(0.7)], "standard": [margins(0.9), margins(0.1)]}
    slabs = {"UDP-near": [margins(0.5)], "LDP-PGD": [margins(0.75)]}
    said = demo.widest({fig3.CORRIDOR: corridor, fig3.SLABS: slabs})
    assert said.endswith("Narrow Corridor: UDP-near (0.60); LMS-5: LDP-PGD (0.75).")
