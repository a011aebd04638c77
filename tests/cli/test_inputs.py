import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from command import refused, widemargin
from widemargin.cli.inputs import answers, data_asked, folder_for
from widemargin.cli.verbs.audit import Audit
from widemargin.data.columns import Columns
from widemargin.data.dataset import Dataset
from widemargin.data.local import TableData
from widemargin.data.local_files import Table
from widemargin.io.load import Model
from widemargin.networks.mlp import MLPSpec
from widemargin.recipes import standard
from widemargin.runs.run import Run
from widemargin.training.plan import Adam, Epochs, Plan
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("place", "weights", "folder"),
    [
        ("run", None, "run"),
        ("there/own.py:Plain", None, "audits/there/own-Plain"),
        ("other/own.py:Plain", None, "audits/other/own-Plain"),
        ("own.py:Cold", None, "audits/own-Cold"),
        ("own.py:Wrong", Path("wrong.pt"), "audits/own-Wrong-wrong.pt"),
        ("own.py:Wrong", Path("there/wrong.pt"), "audits/own-Wrong-there/wrong.pt"),
        ("m.pt2", None, "audits/m.pt2"),
        ("./there/../a/m.pt2", None, "audits/a/m.pt2"),
        ("/far/m.pt2", None, "audits/far/m.pt2"),
        ("m.onnx", None, "audits/m.onnx"),
    ],
)
def test_every_model_has_its_folder(place: str, weights: Path | None, folder: str) -> None:
    Path("run").mkdir()
    assert folder_for(None, place, "audits", weights) == Path(folder)


def test_calibrate_and_audit_look_at_the_data_that_the_run_has_seen(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{i % 7},{i % 5 / 5},{i % 2}" for i in range(80)]
    Path("own.csv").write_text("\n".join(["a,b,label", *rows]) + "\n")
    widemargin("train --data own.csv --method standard --epochs 1 --out own")
    widemargin("calibrate own")
    Path("own.csv").write_text("\n".join(["a,b,label", *rows[:-1]]) + "\n")
    for words in ("calibrate own", "calibrate own --out elsewhere", "audit own --eps .1 --points 2 --out elsewhere"):
        assert refused(words, capsys).startswith("the data must be as it was when the run in own began, but it has")
    shutil.copy("own.csv", "now.csv")
    widemargin("calibrate own --data now.csv")
    assert Path("own/on-now.csv/calibration.json").exists()


def test_the_label_that_is_given_is_taken_whatever_its_name() -> None:
    Path("own.csv").write_text("a,species,label\n" + "".join(f"{k},{'xy'[k % 2]},{'yx'[k % 2]}\n" for k in range(20)))
    data = TableData(Table(str(Path("own.csv").resolve()), "species"), Columns(drop=("label",)))
    run = Run(data, MLPSpec((1, 2)), standard(), Plan(Epochs(1), Adam(0.1)))
    drawn = run.data.draw()
    model = Model(Single(at_input(nn.Linear(1, 2))), "m", "d", run, schema=drawn.train.schema)

    def asked(**words: str | None) -> Any:
        return data_asked(Audit("m", (0.1,), **words), model)  # type: ignore[arg-type]

    assert asked(data="own.csv") == asked(data="own.csv", label="species") == run.data
    usual, other = (asked(test="own.csv", label=label).draw() for label in (None, "label"))
    assert torch.equal(usual.test.labels, 1 - other.test.labels)
    other = asked(data="own.csv", label="label").draw()
    assert torch.equal(drawn.test.labels, 1 - other.test.labels)
    with pytest.raises(ValueError, match=r"--label must name another column of .* than those that the run was"):
        asked(data="own.csv", label="a").draw()


def test_classes_that_only_this_file_numbers_are_refused() -> None:
    network = Single(at_input(nn.Linear(2, 3)))
    points = torch.rand(6, 2)
    assert answers(network, Dataset(points, torch.arange(6) % 2, (0, 1)), "own.npz").shape[-1] == 3
    with pytest.raises(ValueError, match=r"^the network has 3 logits, and which of them are the 2 classes of own.npz"):
        answers(network, Dataset(points, torch.arange(6) % 2, ("b", "c")), "own.npz")
