from dataclasses import replace
from pathlib import Path

import widemargin as wm
from plane_studies import COARSE, SHORT, check
from widemargin_studies.fig3 import PLANS, STUDY


def test_it_runs_reports_and_has_nothing_left(tmp_path: Path) -> None:
    slowly = (wm.Updates(6), wm.Adam(5e-4))
    check(replace(STUDY, seeds=(0, 1), plans=dict.fromkeys(PLANS, SHORT), slowly=slowly, grids=COARSE), tmp_path)
