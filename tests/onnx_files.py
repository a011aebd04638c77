"""Small .onnx files made by hand, and what a network answers to points, with gradients."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed))


def answer_and_gradient(ask: Callable[[Tensor], Tensor], points: Tensor) -> tuple[Tensor, Tensor]:
    points = points.clone().requires_grad_()
    answer = ask(points)
    (gradient,) = torch.autograd.grad((answer * drawn(*answer.shape, seed=1)).sum(), points)
    return answer.detach(), gradient


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
