"""Rows without a label, from files of every kind to the weights that they change."""

import json
from pathlib import Path

import pytest
import torch

import widemargin as wm
from command import refused, widemargin
from partly import KNOWN, POINTS, UDP, VAT, write_csv
from widemargin.training.checkpoint import load_weights


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def weights(folder: str) -> torch.Tensor:
    network = wm.Single(wm.at_input(wm.networks.MLPSpec((2, 64, 64, 2)).build(torch.Generator())))
    load_weights(Path(folder) / "last.safetensors", network)
    return torch.cat([parameter.flatten() for parameter in network.parameters()])


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
