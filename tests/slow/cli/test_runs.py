from pathlib import Path

import numpy as np
import pytest
import torch

from command import widemargin
from widemargin.io.export import trained
from widemargin.io.load import load_model
from widemargin.runs.folder import RunFolder

UDP = "--data digits --fraction .1 --method udp --eps .2 --alpha .1 --steps 2"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def train_a_deep_kernel_on_a_table() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 80)
    np.savez("own.npz", x=(rng.normal(0, 0.3, (80, 3)) + labels[:, None]).astype(np.float32), y=labels)
    widemargin("train --data own.npz --method udp --eps .1 --alpha .1 --steps 1 --epochs 2 --out here --deep-kernel")


@pytest.mark.slow
def test_onnx_of_a_deep_kernel() -> None:
    onnx = pytest.importorskip("onnx")
    train_a_deep_kernel_on_a_table()
    widemargin("export here --to model.onnx")
    onnx.checker.check_model(onnx.load("model.onnx"))
    _, network = trained(RunFolder(Path("here")), "best")
    own_reader = load_model("model.onnx").network
    for rows in (1, 5, 300):
        points = torch.randn(rows, 3)
        torch.testing.assert_close(own_reader(points), network(points), rtol=0, atol=1e-5)
    widemargin("audit model.onnx --data own.npz --eps .1 --budget 10s --out audited")
    assert Path("audited/audit.json").exists()


@pytest.mark.slow
def test_onnx(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    widemargin(f"train {UDP} --epochs 1 --out here")
    widemargin("export here --to model.onnx")
    model = onnx.load("model.onnx")
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == ["points"]
