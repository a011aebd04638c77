import json
import shutil
from dataclasses import replace
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


@pytest.mark.parametrize(("study", "parts"), [("tab3-small", 3), ("fig1", 10)])
def test_what_was_not_run_has_no_report(
    study: str, parts: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(f"study report {study} --runs {tmp_path} --out {tmp_path}/out", capsys)
    assert said == (
        f"{study} cannot be reported with 0 of {parts} parts stored in {tmp_path}: go on with "
        f"`widemargin study run {study} --runs {tmp_path}`\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_study_without_a_report_says_how_much_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(Store(tmp_path), replace(tab3.SMALL, cells=tab3.SMALL.cells[:2]))
    said = refused(f"study report tab3-small --runs {tmp_path} --out {tmp_path}/out", capsys)
    assert said.startswith(f"tab3-small cannot be reported with 2 of 3 parts stored in {tmp_path}: go on with ")


def test_a_training_that_is_lost_is_not_one_to_go_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(Store(tmp_path), tab3.SMALL)
    shutil.rmtree(tmp_path / "trained")
    assert "holds no run" in refused(f"study report tab3-small --runs {tmp_path} --out {tmp_path}/out", capsys)
