import json
import shutil
from pathlib import Path

import pytest

from command import widemargin


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, three_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(three_runs, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)


def test_runs_and_compare_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin("compare runs --json")
    (compared,) = json.loads(capsys.readouterr().out)["tables"]
    assert compared.keys() == {"title", "columns", "rows", "note", "bold"}
    assert [row[:2] for row in compared["rows"]] == [["fgsm", "2"], ["standard", "1"]]
    (Path("runs") / "broken").mkdir()
    (Path("runs") / "broken" / "run.yaml").write_text("key: [")
    widemargin("runs --json")
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["run"] for run in runs] == ["broken", "fgsm-0", "fgsm-1", "standard"]
    assert runs[0]["state"] == "damaged"
    assert runs[0]["problem"]
    figures = json.loads(Path("runs/fgsm-0/figures.json").read_text())
    assert runs[1]["test"] == {name: figures[name] for name in ("clean", "robust")}
    pgd = {"name": "PGD", "norm": "linf", "eps": 0.1, "steps": 10, "alpha": 0.025}
    assert runs[1]["attack"] == {**pgd, "category_changes": 0, "columns": []}
    assert (runs[1]["state"], runs[1]["problem"]) == ("done", "")


def test_the_list_of_runs_fits_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    widemargin("runs")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    figures = json.loads(Path("runs/fgsm-0/figures.json").read_text())
    (row,) = [line for line in lines if "fgsm-0" in line]
    assert all(f"{100 * figures[name]:.2f}" in row for name in ("clean", "robust"))
    assert "PGD-10" in row
