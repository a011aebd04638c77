"""A table as it is, from the command line: trained, resumed, exported, audited, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors import safe_open

import widemargin as wm
from command import refused, widemargin
from widemargin.cli.describe import describe
from widemargin.cli.local_data import own_data
from widemargin.cli.verbs.train import Train
from widemargin.data.columns import Columns
from widemargin.data.frames import read_frame
from widemargin.data.local import TableData
from widemargin.data.local_files import Table
from widemargin.io.export import on_raw_rows, write_network
from widemargin.io.load import load_model
from widemargin.networks.mlp import MLPSpec
from widemargin.perturb.categories import WithCategoryChanges
from widemargin.perturb.search import Search
from widemargin.runs.folder import RunFolder
from widemargin.runs.serialize import to_dict

# As a user runs it: a check of every call's types would take most of the time.
pytestmark = pytest.mark.usefixtures("untyped")
TRAIN = "train --data own.csv --drop id --method pgd --eps .2 --alpha .1 --steps 2 --epochs 2 --width 4"


def rows(count: int, seed: int = 0) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    made = []
    for k in range(count):
        rich = k % 3 == 0
        age = "" if k % 10 == 7 else f"{30 + 20 * rich + 3 * rng.normal():.1f}"
        colour = "?" if k % 13 == 5 else ("red", "green")[k % 2]
        made.append([str(k + 1), age, f"{900 + 800 * rich + 90 * rng.normal():.2f}", colour, "yes" if rich else "no"])
    return made


def write(name: str, lines: list[list[str]], names: str = "id,age,price,colour,label") -> None:
    Path(name).write_text("\n".join([names, *(",".join(line) for line in lines)]) + "\n")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("own.csv", rows(60))


def test_train_resume_export_and_audit(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin(f"{TRAIN} --fixed age --class-weights balanced --eps-column price=100 --out one")
    described = yaml.safe_load(Path("one/run.yaml").read_text())
    assert described["names"]["classes"] == ["no", "yes"]
    features = ["age", "price", "colour=green", "colour=red", "age is missing", "colour is missing"]
    assert described["names"]["features"] == features
    ball = described["run"]["Run"]["method"]["Method"]["perturb"]["Search"]["ball"]["Linf"]
    assert ball["box"]["Box"]["fixed"] == [0, 2, 3, 4, 5]
    assert described["run"]["Run"]["method"]["Method"]["class_weights"] == pytest.approx([0.75, 1.5])
    # 100 of the price are as much as eps, .2.
    schema = RunFolder(Path("one")).read_schema()
    assert schema is not None
    assert schema.columns[1].scale == pytest.approx(500)  # type: ignore[union-attr]
    before = Path("one/schema.json").read_bytes()
    Path("one/schema.json").unlink()
    assert "schema.json is missing: `widemargin resume one` writes it again" in refused("export one --to a.pt2", capsys)
    widemargin("resume one")
    assert Path("one/schema.json").read_bytes() == before
    _check_exports(schema)
    widemargin("audit one --eps .1 --points 2")
    audit = json.loads(Path("one/audit.json").read_text())
    widemargin("audit one.pt2 --data own.csv --eps .1 --points 2")
    same = json.loads(Path("audits/one.pt2/audit.json").read_text())
    assert same["notes"] == []
    for key in audit.keys() - {"model", "seconds", "checksum"}:
        assert same[key] == audit[key], key
    points = [json.loads(Path(f"{folder}/points.json").read_text()) for folder in ("one", "audits/one.pt2")]
    assert points[0] == points[1]
    assert audit["features"] == features
    assert audit["fixed"] == [features[place] for place in (0, 2, 3, 4, 5)]
    assert audit["classes"] == ["no", "yes"]
    assert "held fixed" in Path("one/audit.html").read_text()
    assert "large radius" not in {finding["name"] for finding in audit["findings"]}


def _check_exports(schema: wm.data.Schema) -> None:
    raw = schema.raw(read_frame(Path("own.csv"), schema.selection))
    assert bool(raw.isnan().any())
    with torch.no_grad():
        wanted = wm.load("one")(raw)
        encoded = load_model("one").network.head(schema.encoder()(raw))  # type: ignore[operator, union-attr]
        assert torch.equal(wanted, encoded)
        widemargin("export one --to one.pt2")
        torch.testing.assert_close(torch.export.load("one.pt2").module()(raw), wanted)
        torch.testing.assert_close(wm.load("one.pt2")(raw), wanted)
        again = load_model("one.pt2")
        assert torch.equal(again.network.head(schema.encoder()(raw)), encoded)  # type: ignore[operator, union-attr]
    assert again.schema == schema
    assert again.notes == ()
    widemargin("export one --to one.safetensors")
    with safe_open("one.safetensors", framework="pt") as file:
        noted = file.metadata()
        assert sorted(file.keys())[0] == "layers.0.bias"
    assert wm.data.Schema.from_dict(json.loads(noted["schema"])) == schema
    assert json.loads(noted["features"]) == list(schema.features)


def test_files_that_are_given_later(capsys: pytest.CaptureFixture[str]) -> None:
    write("test.csv", [[line[3], line[4], line[2], line[1]] for line in rows(20, seed=1)], "colour,label,price,age")
    write("held.csv", rows(12, seed=2))
    widemargin(f"{TRAIN} --test test.csv --validation held.csv --out one")
    described = yaml.safe_load(Path("one/run.yaml").read_text())["data"]
    assert described["rows"] == [60, 12, 20]
    assert len(described["digest"].split()) == 3
    widemargin("calibrate one")
    assert json.loads(Path("one/calibration.json").read_text())["n"] == 20
    widemargin("calibrate one --test test.csv --out all")
    assert json.loads(Path("all/calibration.json").read_text())["n"] == 20
    write("some.csv", [[*line[:4], "" if k in (0, 2) else line[4]] for k, line in enumerate(rows(5))])
    widemargin("calibrate one --test some.csv --csv scores.csv --out some")
    assert [line.partition(",")[0] for line in Path("scores.csv").read_text().split()] == ["row", "2", "4", "5"]
    write("test.csv", rows(19))
    assert "the data must be as it was when the run in one began" in refused("calibrate one", capsys)
    write("pink.csv", [["7", "30", "900", "pink", "no"]])
    assert "got 'pink' in row 1" in refused("calibrate one --test pink.csv", capsys)
    write("other.csv", [["7", "30", "900", "red", "maybe"]])
    assert "must hold classes that training has, no, yes, got 'maybe'" in refused(
        "audit one --eps .1 --test other.csv", capsys
    )
    assert "give one of them" in refused("audit one --eps .1 --test own.csv --data own.csv", capsys)


def test_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin("train --data own.csv --only id,price --method standard --no-standardize --epochs 1 --width 2 --out one")
    said = " ".join(capsys.readouterr().out.split())
    assert "Warning: 'id' may be an id" in said
    np.savez("own.npz", X=np.array([[k, 1000.0 * k] for k in range(40)]), y=np.arange(40) % 2)
    widemargin("train --data own.npz --method standard --epochs 1 --width 2 --out two")
    said = " ".join(capsys.readouterr().out.split())
    assert "Warning: standard deviations of the features differ 1,000-fold (feature 0:" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--drop id --only age", "--drop and --only choose the columns in two ways"),
        ("--standardize --no-standardize", "say the opposite"),
        ("--eps-column price=5", "give --eps too"),
        ("--fixed wide", "--fixed must name columns that are used, got 'wide'"),
        ("--missing refuse --drop id", "column 'age' of"),
        ("--test none.csv", "--test must be a file or folder, got none.csv"),
        ("--fixed age --latent", "--fixed holds columns, which latent space has not"),
        ("--perturb-categories --latent", "--perturb-categories changes columns, which latent space has not"),
        ("--perturb-categories colour --category-changes 0", "say the opposite"),
        ("--category-changes -1", "--category-changes must be a whole number of at least 0, got -1"),
        ("--mean .5", "--mean and --std are for images"),
        ("--unlabelled -1", "--unlabelled is for .npz files"),
    ],
)
def test_words_that_cannot_be(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(f"train --data own.csv --method standard {words}", capsys)


def test_radii_of_columns_are_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ("price", "price=", "price=-1", "=3"):
        assert "must be COLUMN=RADIUS" in refused(f"{TRAIN} --eps-column {wrong}", capsys)


def test_names_with_commas() -> None:
    lines = [[k, str(int(k) % 7), age or "1", label] for k, age, _, _, label in rows(60)]
    write("own.csv", lines, '"id,no",a,"b, c",label')
    words = Train("own.csv", "", eps=0.1, drop='"id,no"', fixed='a, "b, c"', eps_column=("b, c=4",))
    columns = TableData(Table("own.csv"), Columns(drop=("id,no",), fixed=("a", "b, c"), units=(("b, c", 40.0),)))
    assert own_data(words, Path("own.csv")) == columns
    only = own_data(Train("own.csv", "", only='"b, c",a'), Path("own.csv")).draw().train
    assert only.features == ("a", "b, c")
    with pytest.raises(ValueError, match="must be separated by commas, on one line"):
        own_data(Train("own.csv", "", drop="a\nb"), Path("own.csv"))


def test_decimal_marks(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{1 + k % 3},{100 + 7 * k};{k % 2}" for k in range(40)]
    for name in ("own.csv", "later.csv"):
        Path(name).write_text("\n".join(["height;label", *lines]))
    words = "train --data own.csv --method standard --epochs 1 --width 2 --out one"
    message = "column 'height' of"
    assert message in refused(words, capsys)
    widemargin(f"{words} --decimal ,")
    schema = RunFolder(Path("one")).read_schema()
    assert schema is not None
    assert schema.columns[0].high < 4  # type: ignore[union-attr]
    widemargin("calibrate one --test later.csv --out later")
    assert json.loads(Path("later/calibration.json").read_text())["n"] == 40
    # In another file the mark may be another one.
    widemargin("calibrate one --test later.csv --decimal . --out later")
    assert "is beyond the 1.1 to 3.366 of training" in Path("later/calibration.html").read_text()
    assert message in refused("separation own.csv", capsys)
    np.savez("own.npz", x=np.ones((4, 2)), y=np.arange(4) % 2)
    assert "--decimal is for tables of text" in refused("train --data own.npz --method standard --decimal ,", capsys)


def test_arrays_by_name_and_images_in_parts(capsys: pytest.CaptureFixture[str]) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 8, 8), np.uint8)
    labels = np.array(["cat", "dog"])[np.arange(40) % 2]
    parts = {"x_train": pixels[:20], "y_train": labels[:20], "x_test": pixels[20:32], "y_test": labels[20:32]}
    np.savez("parts.npz", **parts, x_val=pixels[32:], y_val=labels[32:])
    words = "--network mlp --width 4 --method pgd --eps .1 --alpha .05 --steps 2 --epochs 1 --batch 10"
    widemargin(f"train --data parts.npz {words} --mean .5 --std .25 --out one")
    described = yaml.safe_load(Path("one/run.yaml").read_text())
    assert described["data"]["rows"] == [20, 8, 12]
    assert described["names"] == {"classes": ["cat", "dog"]}
    network = wm.load("one")
    raw = torch.rand(3, 1, 8, 8)
    with torch.no_grad():
        assert torch.equal(network(raw), network.network((raw - 0.5) / 0.25))  # type: ignore[operator, union-attr]
    widemargin("export one --to one.safetensors")
    with safe_open("one.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["classes"]) == ["cat", "dog"]
    assert "must have rows and at most 100,000 columns to be a table" in refused(
        f"train --data parts.npz {words} --drop a", capsys
    )
    assert "must have a number for each of 1 channels" in refused(
        f"train --data parts.npz {words} --mean 1 2 3", capsys
    )
    capsys.readouterr()
    widemargin("calibrate one --test parts.npz --json")
    assert json.loads(capsys.readouterr().out)["n"] == 12, "its part for tests"
    assert "--fit needs a validation split" in refused("calibrate one --test parts.npz --fit temperature", capsys)
    assert "has splits of its own" in refused(f"train --data digits {words} --test parts.npz", capsys)


def test_a_folder_of_parts() -> None:
    image = pytest.importorskip("PIL.Image")
    Path("pets/.hidden").mkdir(parents=True)
    for part, count in (("train", 6), ("val", 2), ("test", 2)):
        for name in ("cat", "dog"):
            Path(f"pets/{part}/{name}").mkdir(parents=True)
            for k in range(count):
                image.new("L", (8, 8), 20 * k).save(f"pets/{part}/{name}/{k}.png")
    words = "--network mlp --width 2 --method standard --epochs 1 --latent"
    widemargin(f"train --data pets {words} --mean .5 --std .25 --out normalised")
    widemargin(f"train --data pets {words} --out one")
    described = yaml.safe_load(Path("one/run.yaml").read_text())
    assert described["data"]["rows"] == [12, 4, 4]
    assert described["names"]["classes"] == ["cat", "dog"]


def test_an_onnx_file_takes_raw_rows() -> None:
    onnx = pytest.importorskip("onnx")
    schema = TableData(Table("own.csv"), Columns(drop=("id",))).draw().train.schema
    assert schema is not None
    raw = schema.raw(read_frame(Path("own.csv"), schema.selection))
    network = on_raw_rows(schema, MLPSpec((6, 2)).build(torch.Generator().manual_seed(0)))
    described = {"columns": list(schema.names), "classes": list(schema.classes), "schema": schema.to_dict()}
    write_network(network, (3,), Path("one.onnx"), described)
    model, encoded = load_model("one.onnx"), schema.encoder()(raw)
    with torch.no_grad():
        torch.testing.assert_close(wm.load("one.onnx")(raw), network(raw))
        torch.testing.assert_close(model.network.head(encoded), network(raw))  # type: ignore[operator, union-attr]
    assert model.schema == schema
    assert model.notes == ()
    metadata = {entry.key: json.loads(entry.value) for entry in onnx.load("one.onnx").metadata_props}
    assert metadata["columns"] == ["age", "price", "colour"]


def test_an_array_as_a_table() -> None:
    points = np.array([[k, 1000.0 * (k % 7), np.nan if k % 5 == 0 else 1.0] for k in range(40)])
    np.savez("own.npz", X=points, y=np.arange(40) % 2, x_test=points, y_test=np.arange(40) % 2)
    words = "--method pgd --eps .1 --alpha .1 --steps 1 --epochs 1 --width 2"
    widemargin(f"train --data own.npz --standardize --fixed x0 {words} --out one")
    described = yaml.safe_load(Path("one/run.yaml").read_text())
    assert described["names"]["features"] == ["x0", "x1", "x2", "x2 is missing"]
    widemargin("calibrate one --test own.npz --out all")
    assert json.loads(Path("all/calibration.json").read_text())["n"] == 40


def test_categories_that_may_change(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin(f"{TRAIN} --perturb-categories colour --epochs 1 --out one")
    assert "PGD-10 linf 0.2, 1 category change)" in capsys.readouterr().out
    described = yaml.safe_load(Path("one/run.yaml").read_text())["run"]["Run"]
    assert described["data"]["TableData"]["columns"]["Columns"]["category_changes"] == 1
    changes = described["method"]["Method"]["perturb"]["WithCategoryChanges"]["changes"]
    assert changes == {"CategoryChanges": {"columns": [[2, 3]], "most": 1}}
    assert "WithCategoryChanges" in described["validation"]["Validation"]["attack"]
    # As in training, unless something else is said.
    widemargin("audit one --eps .1 --points 2 --out changed")
    audit = json.loads(Path("changed/audit.json").read_text())
    assert (audit["perturbed_categories"], audit["category_changes"]) == (["colour"], 1)
    assert "change of category" in audit["broken_by"]
    assert all("changes" in point for point in json.loads(Path("changed/points.json").read_text())["points"])
    widemargin("audit one --eps .1 --points 2 --category-changes 0 --out held")
    assert "category_changes" not in json.loads(Path("held/audit.json").read_text())
    assert "--perturb-categories must name columns of categories" in refused(
        "audit one --eps .1 --perturb-categories age", capsys
    )


def test_all_categories_change_where_none_is_named() -> None:
    made = describe(Train("own.csv", "pgd", eps=0.2, alpha=0.1, steps=2, drop="id", perturb_categories=()))[1]
    assert isinstance(made.method.perturb, WithCategoryChanges)
    assert made.method.perturb.changes.columns == ((2, 3),)
    plain = describe(Train("own.csv", "pgd", eps=0.2, alpha=0.1, steps=2, drop="id"))[1]
    assert isinstance(plain.method.perturb, Search)
    assert "category_changes" not in repr(to_dict(plain))
