import json
from pathlib import Path

import numpy as np
import pytest

from command import refused, widemargin
from widemargin.data.local import TableData
from widemargin.data.local_files import Table
from widemargin.data.schema import Columns


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    # Row 2 has no label; 3 repeats 1; 5 has the input of 4 and another class.
    Path("t.csv").write_text("a,b,kind\n0,0,x\n9,9,\n0,0,x\n1,3,x\n1,3,y\n5,3,y\n0,-2,y\n")
    widemargin("separation t.csv --label kind --norm l2 l1 --no-standardize")
    told = " ".join(capsys.readouterr().out.split())
    assert "6 examples of 2 classes" in told
    assert "contradicting labels: 2 rows have the input" in told
    assert "copies: 1 rows repeat another" in told
    written = json.loads(Path("separations/t.csv/separation.json").read_text())
    assert written["contradictions"] == [{"rows": [4, 5], "classes": ["x", "y"]}]
    assert [group["rows"] for group in written["duplicates"]] == [[1, 3], [4, 5]]
    assert [entry["norm"] for entry in written["norms"]] == ["l2", "l1"]
    closest = written["norms"][0]["closest"]
    assert closest[:2] == [
        {"rows": [4, 5], "classes": ["x", "y"], "distance": 0.0},
        {"rows": [1, 7], "classes": ["x", "y"], "distance": 2.0},
    ]
    assert written["norms"][0]["radii"]["0"] == 0
    assert "b 0, -2" in told
    assert Path("separations/t.csv/separation.html").read_text().count("data:image/png;base64,") == 1


def test_a_table_is_standardised_by_its_training_rows_and_shown_in_its_units(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)) * (1, 1_000)
    rows = [f"{a},{b},{i},{'xy'[i % 2]}" for i, (a, b) in enumerate(x)]
    Path("t.csv").write_text("a,b,id,label\n" + "\n".join(rows))
    widemargin("separation t.csv --norm l2 --drop id --json")
    printed = json.loads(capsys.readouterr().out)
    assert (printed["shape"], printed["units"]) == ([2], "standard deviations of the training rows")
    train = TableData(Table(str(Path("t.csv").resolve())), Columns(drop=("id",))).draw().train.schema
    scaled = x / [column.scale for _, column in train.numbers]
    one, two = (row - 1 for row in printed["norms"][0]["closest"][0]["rows"])
    assert printed["norms"][0]["closest"][0]["distance"] == pytest.approx(
        np.linalg.norm(scaled[one] - scaled[two]), 1e-4
    )


def test_images_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 6, 6), dtype=np.uint8)
    np.savez("i.npz", x=pixels, y=np.arange(40) % 4)
    widemargin("separation i.npz --norm linf --points 12 --out here --json")
    told = capsys.readouterr()
    printed = json.loads(told.out)
    assert (printed["n"], printed["shape"], printed["norms"][0]["measured"]) == (40, [1, 6, 6], 12)
    assert printed["norms"][0]["exact"] is False
    page = Path("here/separation.html").read_text()
    # Histograms, and the closest pairs as pictures.
    assert page.count("data:image/png;base64,") == 2
    assert "a sample" in page


def test_wrong_words_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "DATA must be one of" in refused("separation nowhere.csv", capsys)
    assert "--norm must be one or more of l2, linf, l1, got l3" in refused("separation digits --norm l3", capsys)
    assert "--points must be at least 1, got 0" in refused("separation digits --points 0", capsys)
    Path("one.csv").write_text("a,label\n" + "1,x\n2,x\n" * 10)
    assert "at least 2 classes" in refused("separation one.csv", capsys)
