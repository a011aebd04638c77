from dataclasses import replace
from pathlib import Path

from plane_studies import COARSE, SHORT, check
from widemargin_studies.app_corridor_sweep import STUDY


def test_it_runs_reports_and_has_nothing_left(tmp_path: Path) -> None:
    check(replace(STUDY, seeds=(0, 1), radii=(0.05, 0.25, 0.45), plan=SHORT, grids=COARSE), tmp_path)
