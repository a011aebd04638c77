from pathlib import Path

import pytest

from plane_studies import check, shorten
from widemargin_studies import app_corridor_sweep


def test_it_runs_reports_and_has_nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(app_corridor_sweep, monkeypatch)
    monkeypatch.setattr(app_corridor_sweep, "RADII", (0.05, 0.25, 0.45))
    check(app_corridor_sweep, tmp_path)
