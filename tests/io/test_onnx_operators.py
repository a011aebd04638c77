from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from onnx_files import answer_and_gradient, drawn, helper, numpy_helper, written
from widemargin.io.load import load_model
from widemargin.io.onnx_operators import OPERATORS


def whole(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


W, B, IMAGE = drawn(4, 3, 3, 2, seed=2), drawn(4, seed=3), (2, 3, 7, 6)


DEEP = drawn(6, 1, 3, 3, seed=4)


POSITIVE = drawn(3, seed=5).abs() + 0.1


POOL = {"kernel_shape": [3, 2], "strides": [2, 2]}


Case = tuple[str, dict[str, Any], dict[str, Any], tuple[int, ...], Callable[[Tensor], Tensor]]


CASES: list[Case] = [
    ("Conv", {}, {"w": W, "b": B}, IMAGE, lambda x: F.conv2d(x, W, B)),
    ("Conv", {"pads": [1, 0, 2, 1], "strides": [2, 1]}, {"w": W}, IMAGE,
     lambda x: F.conv2d(F.pad(x, (0, 1, 1, 2)), W, stride=(2, 1))),
    ("Conv", {"pads": [2, 2, 2, 2], "dilations": [2, 2], "group": 3}, {"w": DEEP}, IMAGE,
     lambda x: F.conv2d(x, DEEP, padding=2, dilation=2, groups=3)),
    ("Conv", {"auto_pad": "SAME_UPPER"}, {"w": W}, IMAGE, lambda x: F.conv2d(F.pad(x, (0, 1, 1, 1)), W)),
    ("MaxPool", POOL, {}, IMAGE, lambda x: F.max_pool2d(x, (3, 2), 2)),
    ("MaxPool", {**POOL, "pads": [1, 1, 1, 1], "ceil_mode": 1}, {}, (2, 3, 8, 7),
     lambda x: F.max_pool2d(x, (3, 2), 2, 1, ceil_mode=True)),
    ("MaxPool", {**POOL, "pads": [0, 1, 1, 0], "dilations": [2, 1]}, {}, IMAGE,
     lambda x: F.max_pool2d(F.pad(x, (1, 0, 0, 1), value=-torch.inf), (3, 2), 2, dilation=(2, 1))),
    ("AveragePool", POOL, {}, IMAGE, lambda x: F.avg_pool2d(x, (3, 2), 2)),
    *[("AveragePool", {**POOL, "pads": [1, 1, 1, 1], "ceil_mode": up, "count_include_pad": count}, {}, (2, 3, 8, 7),
       lambda x, up=up, count=count: F.avg_pool2d(x, (3, 2), 2, 1, bool(up), bool(count)))
      for up in (0, 1) for count in (0, 1)],
    ("GlobalAveragePool", {}, {}, IMAGE, lambda x: F.adaptive_avg_pool2d(x, 1)),
    ("GlobalMaxPool", {}, {}, IMAGE, lambda x: F.adaptive_max_pool2d(x, 1)),
    ("BatchNormalization", {"epsilon": 1e-3}, {"s": POSITIVE, "b": B[:3], "m": B[1:], "v": POSITIVE}, IMAGE,
     lambda x: F.batch_norm(x, B[1:], POSITIVE, POSITIVE, B[:3], eps=1e-3)),
    ("Gemm", {"alpha": 0.5, "beta": 2.0, "transB": 1}, {"w": W[:, :, 0, 0], "b": B}, (5, 3),
     lambda x: 0.5 * x @ W[:, :, 0, 0].T + 2 * B),
    ("Gemm", {"transA": 1}, {"w": W[:, :, 0, 0]}, (4, 5), lambda x: x.T @ W[:, :, 0, 0]),
    ("MatMul", {}, {"w": W[:, :, 0, 0].T.contiguous()}, (2, 5, 3), lambda x: x @ W[:, :, 0, 0].T),
    *[(name, {}, {"w": POSITIVE}, (4, 3), lambda x, f=f: f(x, POSITIVE))
      for name, f in (("Add", torch.add), ("Sub", torch.sub), ("Mul", torch.mul), ("Div", torch.div))],
    *[(name, {}, {}, (4, 3), f)
      for name, f in (("Relu", torch.relu), ("Sigmoid", torch.sigmoid), ("Tanh", torch.tanh), ("Exp", torch.exp),
                      ("Erf", torch.erf), ("Softplus", F.softplus), ("Neg", torch.neg), ("Abs", torch.abs),
                      ("Identity", lambda x: x), ("Dropout", lambda x: x), ("Transpose", lambda x: x.T))],
    ("LeakyRelu", {"alpha": 0.2}, {}, (4, 3), lambda x: F.leaky_relu(x, 0.2)),
    ("Elu", {"alpha": 0.2}, {}, (4, 3), lambda x: F.elu(x, 0.2)),
    ("Pow", {}, {"p": torch.tensor(3.0)}, (4, 3), lambda x: x**3),
    ("Softmax", {"axis": 0}, {}, (4, 3), lambda x: x.softmax(0)),
    ("LogSoftmax", {}, {}, (4, 3), lambda x: x.log_softmax(-1)),
    ("ReduceMean", {"keepdims": 0}, {"a": whole(2, -1)}, IMAGE, lambda x: x.mean((2, 3))),
    ("ReduceSum", {}, {"a": whole(1)}, IMAGE, lambda x: x.sum(1, keepdim=True)),
    ("ReduceMax", {}, {"a": whole(1)}, IMAGE, lambda x: x.amax(1, keepdim=True)),
    ("ReduceLogSumExp", {}, {}, (4, 3), lambda x: x.logsumexp((0, 1), True)),
    ("Flatten", {"axis": 2}, {}, IMAGE, lambda x: x.reshape(6, 42)),
    ("Reshape", {}, {"s": whole(0, -1, 2)}, IMAGE, lambda x: x.reshape(2, 63, 2)),
    ("Transpose", {"perm": [0, 2, 3, 1]}, {}, IMAGE, lambda x: x.permute(0, 2, 3, 1)),
    ("Concat", {"axis": 1}, {"w": W[:, :, 0, 0]}, (4, 2), lambda x: torch.cat([x, W[:, :, 0, 0]], 1)),
    ("Squeeze", {}, {"a": whole(-1)}, (2, 3, 1), lambda x: x.squeeze(-1)),
    ("Unsqueeze", {}, {"a": whole(0, -1)}, (2, 3), lambda x: x[None, :, :, None]),
    ("Gather", {"axis": 1}, {"i": whole(2, -3)}, (2, 3), lambda x: x[:, [2, 0]]),
    ("Clip", {}, {"a": torch.tensor(-0.5), "b": torch.tensor(0.5)}, (4, 3), lambda x: x.clamp(-0.5, 0.5)),
    ("Expand", {}, {"s": whole(2, 1, 3)}, (4, 3), lambda x: x.expand(2, 4, 3)),
    ("Cast", {"to": 11}, {}, (4, 3), lambda x: x.double()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "attributes", "stored", "shape", "by_torch"), CASES, ids=[f"{i} {case[0]}" for i, case in enumerate(CASES)]
)
def test_an_operator_alone(
    name: str,
    attributes: dict[str, Any],
    stored: dict[str, Any],
    shape: tuple[int, ...],
    by_torch: Callable[[Tensor], Tensor],
    tmp_path: Path,
) -> None:
    arrays = {key: np.asarray(value) for key, value in stored.items()}
    node = helper.make_node(name, ["x", *arrays], ["y0"], **attributes)
    place = written(tmp_path / "m.onnx", [node, helper.make_node("Identity", ["y0"], ["y"])], arrays, sizes=shape)
    graph = load_model(place).network.head
    found, wanted = (answer_and_gradient(ask, drawn(*shape)) for ask in (graph, by_torch))
    torch.testing.assert_close(found, wanted)


def test_operators_that_only_make_shapes_or_need_positive_numbers(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["zero"], value_ints=[0]),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["rows"]),
        helper.make_node("Constant", [], ["rest"], value=numpy_helper.from_array(whole(-1))),
        helper.make_node("Concat", ["rows", "rest"], ["flat"], axis=0),
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Sqrt", ["e"], ["r"]),
        helper.make_node("Log", ["r"], ["l"]),
        helper.make_node("Reshape", ["l", "flat"], ["y"]),
    ]
    graph = load_model(written(tmp_path / "m.onnx", nodes)).network.head
    torch.testing.assert_close(graph(drawn(2, 3, 4)), drawn(2, 12) / 2)
    tested = {case[0] for case in CASES} | {node.op_type for node in nodes}
    assert set(OPERATORS) <= tested | {"Equal", "IsNaN", "Where"}


def test_operators_that_compare(tmp_path: Path) -> None:
    """Missing values are filled, and categories told apart, as exported tables do it."""
    arrays = {"fill": np.float32([7]), "code": np.float32([1, 2])}
    nodes = [
        helper.make_node("IsNaN", ["x"], ["none"]),
        helper.make_node("Where", ["none", "fill", "x"], ["known"]),
        helper.make_node("Equal", ["known", "code"], ["same"]),
        helper.make_node("Cast", ["same"], ["one"], to=1),
        helper.make_node("Concat", ["known", "one"], ["y"], axis=1),
    ]
    graph = load_model(written(tmp_path / "m.onnx", nodes, arrays, sizes=(2, 2))).network.head
    answer = graph(torch.tensor([[1.0, torch.nan], [3.0, 2.0]]))
    assert answer.tolist() == [[1, 7, 1, 0], [3, 2, 0, 1]]


def test_before_version_13_softmax_joins_axes_and_axes_are_attributes(tmp_path: Path) -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["p"]), helper.make_node("Unsqueeze", ["p"], ["y"], axes=[0])]
    graph = load_model(written(tmp_path / "m.onnx", nodes, opset=9)).network.head
    torch.testing.assert_close(graph(drawn(2, 3, 4)), drawn(2, 12).softmax(-1).reshape(1, 2, 3, 4))
