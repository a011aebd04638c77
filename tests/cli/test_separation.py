import json
from pathlib import Path

import numpy as np
import pytest

from command import refused, widemargin
from widemargin import cli
from widemargin.cli.describe import describe
from widemargin.cli.verbs.train import Train
from widemargin.data.columns import Columns
from widemargin.data.local import TableData
from widemargin.data.local_files import Table
from widemargin.perturb.search import Search


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
    widemargin("separation t.csv --norm l2")
    assert "Warning: 'id' may be an id" in capsys.readouterr().out
    widemargin("separation t.csv --norm l2 --drop id --json")
    told = capsys.readouterr()
    printed = json.loads(told.out)
    assert "Next: widemargin train --data t.csv --method udp --norm l2 --eps auto --drop id" in told.err
    assert "Warning" not in told.err
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


def table_with_kinds(rows: int = 60) -> np.ndarray:
    """Two columns of very different scales, a fixed one, and a category."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 3)) * (1, 1_000, 5)
    lines = [f"{a},{b},{c},{'uv'[i % 2]},{'xy'[i % 3 == 0]}" for i, (a, b, c) in enumerate(x)]
    Path("t.csv").write_text("a,b,age,kind,label\n" + "\n".join(lines))
    return x


@pytest.mark.parametrize(
    "options",
    ["--norm l2", "--norm linf --fixed age", "--norm l2 --drop kind --no-standardize", "--norm l1 --test t.csv"],
)
def test_it_shows_the_radius_that_eps_auto_takes(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    table_with_kinds()
    widemargin(f"separation t.csv --json {options}")
    shown = json.loads(capsys.readouterr().out)["norms"][0]["auto"]
    for method, kind in (("udp", "udp"), ("pgd", "others")):
        words = cli.verb_of(f"train --data t.csv --method {method} --eps auto {options}".split())
        assert isinstance(words, Train)
        search = describe(words)[1].method.perturb
        assert isinstance(search, Search)
        assert shown[kind] == search.ball.radius > 0


def test_distances_are_in_what_may_change_and_in_the_units_of_the_ball(capsys: pytest.CaptureFixture[str]) -> None:
    x = table_with_kinds()
    widemargin("separation t.csv --norm linf --fixed age --eps .5 --eps-column a=.2 b=100 --json")
    printed = json.loads(capsys.readouterr().out)
    labels = np.arange(60) % 3 == 0
    # Where --eps is .5, .2 of a and 100 of b are: their units are .4 and 200.
    scaled = x[:, :2] / (0.4, 200)
    apart = np.abs(scaled[:, None] - scaled).max(-1)
    apart[labels[:, None] == labels] = np.inf
    (norm,) = printed["norms"]
    assert norm["quantiles"]["0"] == pytest.approx(apart.min(), rel=1e-4)
    assert norm["meeting"] == {"eps": 0.5, "share": pytest.approx((apart.min(1) < 1).mean())}
    assert norm["auto"] is None, "train takes no --eps auto with --eps-column"
    assert printed["units"] == "standard deviations of the training rows, a in units of 0.4, b in units of 200"
    assert printed["fixed"] == ["age", "kind=u", "kind=v"]


def test_rows_that_differ_only_in_what_is_fixed_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{i},{i % 2},{'xy'[i % 2]}" for i in range(12)]
    Path("t.csv").write_text("a,sex,label\n" + "\n".join([*lines, "4,1,y"]))
    widemargin("separation t.csv --norm l2 --fixed sex --json")
    printed = json.loads(capsys.readouterr().out)
    assert printed["apart_in_fixed"] == [{"rows": [5, 13], "classes": ["x", "y"]}]
    assert printed["contradictions"] == []
    assert printed["norms"][0]["radii"]["0"] == 0


def test_arrays_of_rows_are_standardised_if_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).normal(size=(40, 2)) * (1, 100)
    np.savez("a.npz", x=x, y=np.arange(40) % 2)
    widemargin("separation a.npz --norm l2 --standardize --json")
    assert json.loads(capsys.readouterr().out)["units"] == "standard deviations of the training rows"


def test_data_that_are_too_few_to_train_on_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("few.npz", x=np.array([[0.0], [1.0], [4.0]]), y=np.array([0, 1, 0]))
    widemargin("separation few.npz --norm l2 --json")
    told = capsys.readouterr()
    (norm,) = json.loads(told.out)["norms"]
    assert (norm["radii"]["0"], norm["auto"]) == (0.5, None)
    assert "Warning: `widemargin train` refuses these data, so there is no --eps auto: the validation split" in told.err
    assert "Next:" not in told.err
