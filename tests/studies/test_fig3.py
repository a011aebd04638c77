from pathlib import Path

import pytest

import widemargin as wm
from plane_studies import SHORT, check, shorten
from widemargin_studies import fig3


def test_it_runs_reports_and_has_nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(fig3, monkeypatch)
    monkeypatch.setattr(fig3, "SLOWLY", (wm.Updates(6), wm.Adam(5e-4)))
    monkeypatch.setattr(fig3, "PLANS", dict.fromkeys(fig3.PLANS, SHORT))
    check(fig3, tmp_path)
