import json
from pathlib import Path

import pytest

from command import refused, widemargin
from pixel_studies import filled
from widemargin.report.store import Store
from widemargin_studies import tab3


def test_a_report_is_written_and_kept_where_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(Store(tmp_path / "runs"), tab3.SMALL)
    words = f"study report tab3-small --runs {tmp_path}/runs --out {tmp_path}/out"
    widemargin(f"{words} --keep {tmp_path}/results")
    said = capsys.readouterr().out
    written = [*(tmp_path / "out" / "tab3-small").iterdir(), *(tmp_path / "results").iterdir()]
    assert len(written) > 2
    assert all(path.name in said for path in written)
    widemargin(f"{words} --json")
    content, _ = json.JSONDecoder().raw_decode(capsys.readouterr().out)
    assert [table["title"] for table in content["tables"]]


def test_what_was_not_run_has_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(f"study report tab3-small --runs {tmp_path} --out {tmp_path}/out", capsys)
    assert "holds no run" in said
    assert not (tmp_path / "out").exists()
