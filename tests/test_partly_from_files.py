"""Rows without a label, from files of every kind to the weights that they change."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import widemargin as wm
from test_cli_train import refused, widemargin
from widemargin.data.checks import UNLABELLED
from widemargin.data.local import ImageFolder, LocalData, Npz, Table
from widemargin.training.checkpoint import load_weights

ROWS, KNOWN = 200, 60
RNG = np.random.default_rng(0)
CLASSES = np.arange(ROWS) % 2
POINTS = (RNG.normal(size=(ROWS, 2)) * 0.3 + np.where(CLASSES, 1, -1)[:, None]).astype(np.float32)
VAT = "--method vat --eps .3 --weight 1 --norm l2"
UDP = "--method udp-consistency --eps .3 --alpha .1 --steps 3 --weight 1 --norm l2"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_csv(points: np.ndarray = POINTS) -> None:
    cells = [
        f"{a},{b},{'ab'[c] if i < KNOWN else ''}" for i, ((a, b), c) in enumerate(zip(points, CLASSES, strict=True))
    ]
    Path("own.csv").write_text("\n".join(["u,v,label", *cells]) + "\n")


def weights(folder: str) -> torch.Tensor:
    network = wm.Single(wm.at_input(wm.networks.MLPSpec((2, 64, 64, 2)).build(torch.Generator())))
    load_weights(Path(folder) / "last.safetensors", network)
    return torch.cat([parameter.flatten() for parameter in network.parameters()])


def test_parts_measure_on_labels_alone_and_train_on_all() -> None:
    write_csv()
    parts = LocalData(Table("own.csv")).draw()
    assert [len(parts.train), len(parts.validation), len(parts.test)] == [42 + ROWS - KNOWN, 6, 12]
    assert parts.train.has_unlabelled
    assert int((parts.train.labels == UNLABELLED).sum()) == ROWS - KNOWN
    assert not parts.validation.has_unlabelled
    assert not parts.test.has_unlabelled
    assert UNLABELLED not in parts.test.labels
    whole = parts.train.labelled()
    assert len(whole) == 42


@pytest.mark.parametrize("method", [VAT, UDP], ids=["vat", "udp"])
def test_rows_without_a_label_change_the_weights(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv()
    widemargin(f"train --data own.csv {method} --epochs 2 --out one")
    assert "140 of 182 training rows have no label: they are trained on too" in capsys.readouterr().out
    assert json.loads(Path("one/figures.json").read_text())["clean"] > 0.9
    moved = POINTS.copy()
    moved[KNOWN:] += 1
    write_csv(moved)
    widemargin(f"train --data own.csv {method} --epochs 2 --out two")
    assert not torch.equal(weights("one"), weights("two"))
    # A run goes on from its file, and its data has changed since.
    capsys.readouterr()
    assert "it has changed" in refused("resume one", capsys)


def test_whoever_needs_labels_leaves_such_rows_out_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv()
    widemargin("train --data own.csv --method standard --epochs 2 --batch 16 --out one")
    assert "140 of 182 training rows have no label and are left out: vat" in capsys.readouterr().out
    moved = POINTS.copy()
    moved[KNOWN:] += 1
    write_csv(moved)
    widemargin("train --data own.csv --method standard --epochs 2 --batch 16 --out two")
    assert torch.equal(weights("one"), weights("two"))
    capsys.readouterr()
    widemargin(f"train --data own.csv {VAT} --mixed --epochs 1 --batch 16 --out mixed")
    assert "are left out" in capsys.readouterr().out


def test_npz_says_by_nan_or_by_a_number_of_ones_choice(capsys: pytest.CaptureFixture[str]) -> None:
    hidden = np.where(np.arange(ROWS) < KNOWN, CLASSES, -1)
    np.savez("own.npz", x=POINTS, y=hidden)
    np.savez("nan.npz", x=POINTS, y=np.where(hidden < 0, np.nan, hidden))
    assert not Npz("own.npz").read().has_unlabelled
    assert Npz("own.npz").read().names == (-1, 0, 1)
    by_number, by_nan = Npz("own.npz", unlabelled=-1).read(), Npz("nan.npz").read()
    assert by_number.names == by_nan.names == (0, 1)
    assert by_number.labels.tolist() == by_nan.labels.tolist() == hidden.tolist()
    assert eval(repr(Npz("own.npz", unlabelled=-1))) == Npz("own.npz", unlabelled=-1)
    with pytest.raises(ValueError, match="must hold -7 where there is no label, got none such"):
        Npz("own.npz", unlabelled=-7).read()
    widemargin(f"train --data own.npz {UDP} --unlabelled -1 --epochs 1 --out here")
    assert "140 of 182 training rows" in capsys.readouterr().out
    widemargin("resume here")
    write_csv()
    assert "--unlabelled is for .npz files" in refused(f"train --data own.csv {UDP} --unlabelled -1", capsys)


def test_a_folder_of_images_called_unlabelled_is_no_class(capsys: pytest.CaptureFixture[str]) -> None:
    for name, count in (("cat", 12), ("dog", 12), ("unlabelled", 9)):
        (Path("own") / name).mkdir(parents=True)
        for number in range(count):
            pixels = RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(Path("own") / name / f"{number}.png")
    read = ImageFolder("own").read()
    assert read.names == ("cat", "dog")
    assert read.labels.tolist() == [0] * 12 + [1] * 12 + [UNLABELLED] * 9
    widemargin(f"train --data own --network lenet {VAT} --epochs 1 --out here")
    assert "9 of 26 training rows have no label: they are trained on too" in capsys.readouterr().out
    assert json.loads(Path("here/figures.json").read_text())["clean"] <= 1


def test_fit_takes_them_warns_or_refuses() -> None:
    write_csv()
    plan = wm.Plan(wm.Updates(5), wm.Adam(0.01), batch=16)
    method = wm.udp_consistency(wm.L2(0.3, wm.OPEN), 0.1, 3, weight=1.0)
    shape, labels = wm.networks.MLPSpec((2, 8, 2)), torch.tensor(np.where(np.arange(ROWS) < KNOWN, CLASSES, UNLABELLED))
    hidden = wm.Dataset(torch.tensor(POINTS), labels)
    by_pair, by_set = (wm.fit(shape, data, method, plan).network for data in ((hidden.points, labels), hidden))
    assert torch.equal(by_pair(hidden.points), by_set(hidden.points))
    assert wm.fit(shape, LocalData(Table("own.csv")), method, plan).figures["clean"] >= 0
    with pytest.raises(ValueError, match=r"^labels must be in 0..1 for 2 classes, got -1..1$"):
        wm.fit(shape, hidden, wm.standard(), plan)
    with pytest.warns(UserWarning, match="140 of 182 training rows have no label and are left out"):
        wm.fit(shape, LocalData(Table("own.csv")), wm.standard(), plan)
    with pytest.warns(UserWarning, match="are left out"):
        wm.fit(shape.build(torch.Generator()), LocalData(Table("own.csv")).draw(), wm.standard(), plan)


def test_a_perturbation_of_ones_own_must_say_that_it_takes_them() -> None:
    class Own:
        def __call__(self, *arguments: object) -> wm.perturb.Perturbed:
            raise AssertionError("it is not asked")

    assert not wm.Method(Own(), wm.perturb.labelled_loss).takes_unlabelled
    assert wm.Method(wm.perturb.Unperturbed(), wm.perturb.labelled_loss).takes_unlabelled
    assert not wm.standard().takes_unlabelled
    consistent = wm.vat(wm.L2(0.3), 1.0)
    assert consistent.takes_unlabelled
    assert isinstance(consistent.perturb, wm.perturb.Search)
    assert wm.Method(wm.perturb.InTrainMode(consistent.perturb), consistent.criterion).takes_unlabelled
