import json
from pathlib import Path

import pytest
from rich.console import Console

from widemargin import cli
from widemargin.cli.study_list import list_studies
from widemargin.cli.verbs.study import StudyList


def test_the_list_fits_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    cli.main(["study", "list"])
    lines = capsys.readouterr().out.splitlines()
    assert "  fig3                                 260 parts   about 32 min" in lines
    assert max(map(len, lines)) <= 80
    # Scales of one study stand below one title.
    assert lines.count("Tab. 2: Fashion-MNIST") == 1


def test_the_list_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["study", "list", "--json"])
    content = json.loads(capsys.readouterr().out)
    assert content.keys() == {"hardware", "studies"}
    (fig1,) = [row for row in content["studies"] if row["study"] == "fig1"]
    assert fig1.keys() == {"study", "title", "parts", "core_minutes", "done", "problem"}
    assert (fig1["parts"], fig1["done"]) == (10, None)


def test_what_is_left_is_asked_of_the_studies(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    list_studies(StudyList(left=True, runs=tmp_path), Console(), ["fig1"])
    assert "fig1                              0 of 10 done   about 1 min" in capsys.readouterr().out
