from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from widemargin.io.export import write_network
from widemargin.io.load import load_model

onnx = pytest.importorskip("onnx")


helper, numpy_helper = onnx.helper, onnx.numpy_helper


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed))


def written(
    path: Path,
    nodes: list[Any],
    stored: dict[str, np.ndarray] | None = None,
    opset: int = 18,
    sizes: tuple[int, ...] | None = None,
) -> str:
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, sizes)
    answer = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(value, name) for name, value in (stored or {}).items()]
    graph = helper.make_graph(nodes, "graph", [given], [answer], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    onnx.save(model, path)
    return str(path)


def test_a_last_softmax_is_left_off(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["l"]), helper.make_node("Softmax", ["l"], ["y"], axis=1)]
    model = load_model(written(tmp_path / "m.onnx", nodes, sizes=(1, 3)))
    assert "softmax was left off" in model.notes[0]
    assert "exactly 1 points" in model.notes[1]
    write_network(nn.Sequential(nn.Linear(2, 3), nn.Softmax(-1)), (2,), tmp_path / "m.pt2")
    model = load_model(str(tmp_path / "m.pt2"))
    assert "softmax was left off" in model.notes[0]
    assert model.network.logits(drawn(4, 2))[0].sum(-1).sub(1).abs().max() > 1e-2
