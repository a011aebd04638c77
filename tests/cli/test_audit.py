import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from command import refused, widemargin
from widemargin import cli
from widemargin.auditing.config import AuditConfig
from widemargin.cli.audit import _free_folder, audit_model
from widemargin.cli.verbs.audit import Audit
from widemargin.data.local import LocalData
from widemargin.data.local_files import Npz
from widemargin.measure.diagnostics import DIAGNOSES
from widemargin.perturb.apgd import APGD
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import Ball, Box, Norm
from widemargin.perturb.fmn import FMN
from widemargin.perturb.square import Square

OWN = """
import torch
from torch import nn


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.tensor([[3.0, 0.0, 0.0], [0.0, 3.0, 0.0]]))

    def forward(self, points):
        return points @ self.weight.T


class Cold(Plain):
    def forward(self, points):
        return super().forward(points) / 10


class Soft(Plain):
    def forward(self, points):
        return super().forward(points).softmax(-1)


class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(7, 2)

    def forward(self, points):
        if len(points[0]) != 7:
            raise KeyError("seven features\\nare needed")
        return self.layer(points)
"""


def table(path: str, classes: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    labels = np.arange(80) % classes
    points = rng.normal(0, 0.3, (80, 3)) + np.eye(3)[labels]
    np.savez(path, x=points.astype(np.float32), y=labels)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    table(f"{folder}/two.npz", 2)
    table(f"{folder}/three.npz", 3)
    table(f"{folder}/others.npz", 2, seed=1)
    (folder / "own.py").write_text(OWN)
    torch.save({"layer.weight": torch.ones(2, 7), "layer.bias": torch.ones(2)}, folder / "wrong.pt")
    widemargin(f"train --data {folder}/two.npz --method standard --epochs 1 --out {folder}/run")
    return folder


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@dataclass(frozen=True)
class Few:
    def __call__(self, ball: Ball, classes: int, rows_at_once: int = 0) -> tuple[Attack, ...]:
        return (APGD(ball, steps=2), Square(ball, queries=2))


@dataclass(frozen=True)
class FewShortest:
    def __call__(
        self, norm: Norm, box: Box, classes: int, rows_at_once: int = 0, starts: int = 1
    ) -> tuple[Attack, ...]:
        return (FMN(norm, box, steps=2),)


@dataclass(frozen=True)
class Quick:
    """With next to no attacks: what is found is tested elsewhere."""

    words: Audit

    @property
    def json(self) -> bool:
        return self.words.json

    def __call__(self, console: Console) -> None:
        audit_model(self.words, console, _few)


def _few(balls: tuple[Ball, ...], points: int, seed: int) -> AuditConfig:
    return AuditConfig(balls, points, seed, standard=Few(), shortest=FewShortest(), diagnoses=DIAGNOSES[1:2])


def audit(words: str) -> None:
    verb = cli.verb_of(["audit", *words.split()])
    assert isinstance(verb, Audit)
    cli.execute(Quick(verb))


def files() -> set[str]:
    return {str(path) for path in Path().rglob("*") if "__pycache__" not in path.parts}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("audit run --eps .1 --data digits", "the network must take points of shape [1, 8, 8], as those of digits"),
        ("calibrate run --data digits", "the network must take points of shape [1, 8, 8], as those of digits"),
        (
            "audit own.py:Wrong --weights wrong.pt --data two.npz --eps .1",
            "the network must take points of shape [3], as those of two.npz are, but it raised an error",
        ),
        ("audit run --eps .1 --data three.npz", "the network must tell all 3 classes of three.npz apart, got 2"),
        ("calibrate run --data three.npz", "the network must tell all 3 classes of three.npz apart, got 2"),
        ("calibrate own.py:Soft --data two.npz", "the network must return logits, got rows that look like prob"),
        ("export run --to nowhere/model.pt2", "--to must be in a folder that exists, got nowhere/model.pt2"),
        (
            "audit run --eps .1 --box",
            "--box must be unit, open, data or two numbers, the lower one first, such as -1 1",
        ),
        ("audit run --eps .1 --box 1", "--box must be unit, open, data or two numbers, the lower one first"),
        ("audit run --eps .1 --box 1 -1", "--box must be unit, open, data or two numbers, the lower one first"),
        ("audit run --eps .1 --box 0 inf", "--box must be unit, open, data or two numbers, the lower one first"),
        ("audit run --eps .1 --box unit 1", "--box must be unit, open, data or two numbers, the lower one first"),
        ("audit own.py:Plain --eps .1 --box data --data digits", "--box data is for tables: for images give unit"),
        ("audit run --eps .1 --out two.npz", "--out must be a folder or be free for one, got two.npz"),
        (
            "audit run --eps .1 --seed 1180591620717411303424",
            "--seed must be a whole number from 0 to 2^63 - 1, got 1180591620717411303424",
        ),
        ("calibrate run --out two.npz", "--out must be a folder or be free for one, got two.npz"),
        ("calibrate run --out two.npz/inside", "--out must be a folder or be free for one, got two.npz/inside"),
        ("audit run --eps .1 --out /proc/x", "--out must be a folder or be free for one, got /proc/x"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_leaves_nothing(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files()
    assert refused(words, capsys).startswith(sentence)
    assert files() == before


def test_a_damaged_part_of_an_audit_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = "run --eps .1 --points 4"
    audit(words)
    figures = {**json.loads(Path("run/audit.json").read_text()), "seconds": 0, "checksum": ""}
    for pattern in ("[0-9]*.safetensors", "findings.json"):
        (path,) = Path("run/audit").rglob(pattern)
        whole = path.read_bytes()
        path.write_bytes(whole[:20] if path.suffix == ".json" else whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
        capsys.readouterr()
        told = refused(words, capsys, command=audit)
        assert told.startswith(f"{path} is damaged")
        assert "delete it, and the same command measures what was in it again; everything else is kept" in told
        path.unlink()
    audit(words)
    assert {**json.loads(Path("run/audit.json").read_text()), "seconds": 0, "checksum": ""} == figures


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_features_have_one_interval_or_each_its_own(norm: str) -> None:
    points, labels = (np.load("two.npz")[name] for name in "xy")
    points[:, 2] = 0.25
    np.savez("flat.npz", x=points, y=labels)
    name = "audit.json" if norm == "linf" else f"audit-{norm}.json"
    boxes = {}
    for words in ("-3 3", "data"):
        audit(f"own.py:Plain --data flat.npz --norm {norm} --eps .5 --points 6 --box {words} --out out")
        figures = json.loads(Path("out", name).read_text())
        boxes[words] = eval(figures["box"], {"Box": Box})
        assert figures["robust"], "nothing lies outside"
    assert boxes["-3 3"] == Box(-3.0, 3.0)
    own = LocalData(Npz("flat.npz")).draw().test.points
    assert boxes["data"].low == tuple(own.amin(0).tolist())
    assert boxes["data"].high[:2] == tuple(own.amax(0).tolist())[:2]
    assert np.float32(boxes["data"].high[2]) == 0.25 < boxes["data"].high[2], "what never varies stays"
    assert ("with an interval for each feature" if words == "data" else "Box [-3, 3]") in Path(
        "out", name.replace("json", "html")
    ).read_text()


def test_an_audit_for_programs_and_for_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "run --eps 8/255 .1 .2 .3 .4 .5 --points 6"
    audit(f"{words} --json")
    content = json.loads(capsys.readouterr().out)
    written = json.loads(Path("run/audit.json").read_text())
    assert content == {name: value for name, value in written.items() if name != "checksum"}
    assert [one["eps"] for one in content["robust"]] == [8 / 255, 0.1, 0.2, 0.3, 0.4, 0.5]
    monkeypatch.setenv("COLUMNS", "80")
    audit(words)
    lines = capsys.readouterr().out.splitlines()
    paths = [line for line in lines if line.startswith("  run/")]
    assert max(len(line) for line in lines if line not in paths) <= 80
    assert any("linf 8/255" in line for line in lines)
    assert any("Accuracy under AutoAttack" in line for line in lines)


def test_adversarial_examples_are_saved_on_request() -> None:
    words = "own.py:Plain --data two.npz --norm l2 --eps .2 2 --points 12 --out out"
    audit(words)
    assert not Path("out/adversarial-l2.npz").exists()
    audit(f"{words} --save-adversarial")
    with np.load("out/adversarial-l2.npz") as saved:
        assert (str(saved["norm"]), len(saved["rows"])) > ("l2", 0)
        assert (saved["predictions"] == saved["labels"]).all()
        assert (saved["adversarial_predictions"] != saved["labels"]).all()
        moved = np.linalg.norm(saved["adversarial"] - saved["inputs"], axis=1)
        np.testing.assert_allclose(moved, saved["distance"], rtol=1e-4)
        tests = LocalData(Npz("two.npz")).draw().test
        assert np.array_equal(saved["inputs"], tests.points[saved["rows"]])
    assert not Path("out/adversarial-l2.png").exists(), "rows of a table are no pictures"


def test_files_of_one_name_in_two_folders_are_kept_apart() -> None:
    for number, folder in enumerate(("a", "b")):
        Path(folder).mkdir()
        Path(folder, "own.py").write_text(OWN.replace("points @", "-points @" if number else "points @"))
        audit(f"{folder}/own.py:Plain --data two.npz --eps .1 --points 4")
    found = {str(path): json.loads(path.read_text()) for path in Path("audits").rglob("audit.json")}
    assert set(found) == {"audits/a/own-Plain/audit.json", "audits/b/own-Plain/audit.json"}
    first, second = found.values()
    assert {first["model"], second["model"]} == {"a/own.py:Plain", "b/own.py:Plain"}
    assert first["clean"] + second["clean"] == 1
    # Nor does a folder that both share mix them up, though their weights are the same.
    for folder in ("a", "b"):
        audit(f"{folder}/own.py:Plain --data two.npz --eps .1 --points 4 --out both")
        assert (
            json.loads(Path("both/audit.json").read_text())["clean"]
            == found[f"audits/{folder}/own-Plain/audit.json"]["clean"]
        )


def test_norms_and_other_data_are_kept_side_by_side() -> None:
    for words in ("", "--norm l2", "--data others.npz", "--data two.npz --norm l1"):
        audit(f"run --eps .1 --points 4 {words}")
    found = {str(path) for path in Path("run").rglob("audit*.json")}
    assert found == {
        "run/audit.json",
        "run/audit-l2.json",
        "run/audit-l1.json",
        "run/on-others.npz/audit.json",
    }
    assert json.loads(Path("run/audit.json").read_text())["data"] == "two.npz"


def test_one_model_file_on_other_data_is_kept_beside_the_first() -> None:
    Path("there").mkdir()
    table("there/two.npz", 2, seed=2)
    for data in ("two.npz", "others.npz", "there/two.npz", "two.npz"):
        audit(f"own.py:Plain --data {data} --eps .1 --points 4")
    folder = Path("audits/own-Plain")
    found = {str(path.relative_to(folder)): json.loads(path.read_text()) for path in folder.rglob("audit.json")}
    assert len({one["data_digest"] for one in found.values()}) == 3
    assert {name: one["data"] for name, one in found.items()} == {
        "audit.json": "two.npz",
        "on-others.npz/audit.json": "others.npz",
        "on-two.npz/audit.json": "two.npz",
    }


def test_an_audit_of_before_is_known_by_the_name_of_its_data(tmp_path: Path) -> None:
    usual = tmp_path / "model"
    usual.mkdir()
    (usual / "audit.json").write_text('{"version": 4, "data": "digits"}')
    assert _free_folder(usual, "digits", "1a2b3c4d5e", apart=False) == usual
    assert _free_folder(usual, "mnist", "1a2b3c4d5e", apart=False) == usual / "on-mnist"
    (usual / "on-mnist").mkdir()
    (usual / "on-mnist" / "audit-l2.json").write_text('{"data": "mnist", "data_digest": "another"}')
    assert _free_folder(usual, "mnist", "1a2b3c4d5e", apart=False) == usual / "on-mnist-1a2b3c4d"
    (usual / "audit.json").write_text('{"version": 4, "da')
    assert _free_folder(usual, "digits", "1a2b3c4d5e", apart=False) == usual, "nothing is lost with a damaged one"
