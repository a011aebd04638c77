import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from widemargin.cli.reports import print_report, write_report
from widemargin.report.document import Report

REPORT = Report("A title", "What was asked", "settings", ())


def test_a_page_is_printed_or_instead_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    print_report(REPORT, {"n": 1}, False, Console(file=out, width=80))
    assert "A title" in out.getvalue()
    assert capsys.readouterr().out == ""
    print_report(REPORT, {"n": 1}, True, Console(file=(quiet := io.StringIO())))
    assert json.loads(capsys.readouterr().out) == {"n": 1}
    assert quiet.getvalue() == ""


def test_numbers_and_page_are_files_of_one_name_which_are_said(tmp_path: Path) -> None:
    out = io.StringIO()
    write_report(REPORT, {"n": 1}, tmp_path, "v1.5", Console(file=out))
    numbers, page = tmp_path / "v1.5.json", tmp_path / "v1.5.html"
    assert json.loads(numbers.read_text())["n"] == 1
    assert "A title" in page.read_text()
    assert out.getvalue() == f"  {numbers}\n  {page}\n"
