"""What comes back from a file is the network that was written; what is not a network is refused in one sentence."""

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Generator, Tensor, nn

from widemargin import Dataset, Linf, cli
from widemargin.io.export import trained, write_network
from widemargin.io.load import load_model
from widemargin.io.onnx_graph import OPERATORS
from widemargin.measure.certified import certified_radius
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.named import LeNetSpec, ResNetSpec
from widemargin.networks.spectral import ResidualMLPSpec
from widemargin.runs.folder import RunFolder
from widemargin.runs.run import NetworkSpec
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.ensemble import Ensemble
from widemargin.uncertainty.estimators import AtInput, DeepKernelSpec
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.single import Single

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed))


def answer_and_gradient(ask: Callable[[Tensor], Tensor], points: Tensor) -> tuple[Tensor, Tensor]:
    points = points.clone().requires_grad_()
    answer = ask(points)
    (gradient,) = torch.autograd.grad((answer * drawn(*answer.shape, seed=1)).sum(), points)
    return answer.detach(), gradient


def members() -> Ensemble:
    return Ensemble([MLPSpec((2, 4, 3)).build(Generator().manual_seed(seed)) for seed in (0, 1)])


def deep_kernel(shape: NetworkSpec, points: tuple[int, ...]) -> Network:
    pytest.importorskip("gpytorch")
    cloud = Dataset(drawn(30, *points), torch.arange(30) % 2)
    return DeepKernelSpec(6, 4).network(lambda _: shape.build(Generator().manual_seed(0)), AtInput(), cloud)


NETWORKS = {
    "mlp": (lambda: MLPSpec((2, 16, 3)).build(Generator().manual_seed(0)), (2,)),
    "lenet": (lambda: LeNetSpec(side=12).build(Generator().manual_seed(0)), (1, 12, 12)),
    "resnet": (lambda: ResNetSpec(width=8).build(Generator().manual_seed(0)), (3, 8, 8)),
    "ensemble": (members, (2,)),
    "deep kernel": (lambda: deep_kernel(ResidualMLPSpec(2, 3, 8, 2), (2,)), (2,)),
}
SLOW_NETWORKS = {
    "lenet's kernel": (lambda: deep_kernel(LeNetSpec(side=12), (1, 12, 12)), (1, 12, 12)),
    "resnet's kernel": (lambda: deep_kernel(ResNetSpec(width=8), (3, 8, 8)), (3, 8, 8)),
}


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("name", [*NETWORKS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_NETWORKS)])
def test_an_exported_network_comes_back(name: str, suffix: str, tmp_path: Path) -> None:
    make, shape = (NETWORKS | SLOW_NETWORKS)[name]
    network = make().eval()
    write_network(network, shape, tmp_path / f"model{suffix}")
    place = str(tmp_path / f"model{suffix}")
    model = load_model(place)
    assert (model.name, model.run, model.notes) == (place, None, ())
    assert not any(module.training for module in model.network.modules())
    for rows in (1, 2, 7):
        points = drawn(rows, *shape)
        wanted, wanted_gradient = answer_and_gradient(network, points)
        found, gradient = answer_and_gradient(lambda x: model.network.logits(model.network.encode(x))[0], points)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
        torch.testing.assert_close(gradient, wanted_gradient, atol=1e-4, rtol=0)


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_an_exported_network_has_the_certificates_of_the_original(name: str, suffix: str, tmp_path: Path) -> None:
    make, shape = NETWORKS[name]
    network = make().eval()
    write_network(network, shape, tmp_path / f"model{suffix}")
    points = drawn(4, *shape).sigmoid()
    with torch.no_grad():
        cloud = Dataset(points, network(points).argmax(1))
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        wanted = certified_radius(Single(at_input(network)), cloud, Linf(0.5))
        found = certified_radius(load_model(str(tmp_path / f"model{suffix}")).network, cloud, Linf(0.5))
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    assert (wanted > 0).all()
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


def test_an_operator_without_certificate_is_named_in_one_sentence(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    cloud = Dataset(drawn(2, 3).sigmoid(), torch.tensor([0, 1]))
    write_network(nn.Sequential(nn.Linear(3, 3), nn.Tanh()), (3,), tmp_path / "m.pt2")
    places = [str(tmp_path / "m.pt2"), written(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])])]
    # Not before: an export traces in its own way.
    request.getfixturevalue("untyped_tracing")
    for place in places:
        with pytest.raises(ValueError, match="no certificate for a network with the operator 'tanh'") as refused:
            certified_radius(load_model(place).network, cloud, Linf(0.5))
        assert not any(word in str(refused.value) for word in ("\n", "%", "fx", "default"))


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
    assert set(OPERATORS) <= tested


def test_before_version_13_softmax_joins_axes_and_axes_are_attributes(tmp_path: Path) -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["p"]), helper.make_node("Unsqueeze", ["p"], ["y"], axes=[0])]
    graph = load_model(written(tmp_path / "m.onnx", nodes, opset=9)).network.head
    torch.testing.assert_close(graph(drawn(2, 3, 4)), drawn(2, 12).softmax(-1).reshape(1, 2, 3, 4))


def test_a_last_softmax_is_left_off(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["l"]), helper.make_node("Softmax", ["l"], ["y"], axis=1)]
    model = load_model(written(tmp_path / "m.onnx", nodes, sizes=(1, 3)))
    assert "softmax was left off" in model.notes[0]
    assert "exactly 1 points" in model.notes[1]
    write_network(nn.Sequential(nn.Linear(2, 3), nn.Softmax(-1)), (2,), tmp_path / "m.pt2")
    model = load_model(str(tmp_path / "m.pt2"))
    assert "softmax was left off" in model.notes[0]
    assert model.network.logits(drawn(4, 2))[0].sum(-1).sub(1).abs().max() > 1e-2


def test_refused_onnx(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with pytest.raises(ValueError, match="operator Det is not known here"):
        load_model(written(path, [helper.make_node("Det", ["x"], ["y"])]))
    with pytest.raises(ValueError, match="version 7 or later, got 6"):
        load_model(written(path, [helper.make_node("Relu", ["x"], ["y"])], opset=6))
    with pytest.raises(ValueError, match="reads 'z', which nothing before it makes"):
        load_model(written(path, [helper.make_node("Relu", ["z"], ["y"])]))
    place = written(path, [helper.make_node("Add", ["x", "w"], ["y"])], {"w": np.ones(300, np.float32)})
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(ValueError, match="must be a whole ONNX file"):
        load_model(place)
    model = onnx.load(written(path, [helper.make_node("Add", ["x", "w"], ["y"])], {"w": np.ones(3, np.float32)}))
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], "../secret")
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"own folder, got '../secret'"):
        load_model(place)


class Trap:
    """Reading it in the way of pickle makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def changed(path: Path, change: Callable[[str, bytes], bytes], more: dict[str, bytes] | None = None) -> str:
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    root = next(iter(content)).split("/")[0]
    to = path.with_name("changed.pt2")
    with zipfile.ZipFile(to, "w") as archive:
        for name, value in content.items():
            archive.writestr(name, change(name, value))
        for name, value in (more or {}).items():
            archive.writestr(f"{root}/{name}", value)
    return str(to)


def test_no_code_of_an_archive_runs(tmp_path: Path) -> None:
    network, path, sprung = (
        MLPSpec((2, 4, 3)).build(Generator().manual_seed(0)),
        tmp_path / "m.pt2",
        tmp_path / "sprung",
    )
    write_network(network, (2,), path)
    buffer = io.BytesIO()
    torch.save((Trap(sprung),), buffer)
    code = f"__import__('pathlib').Path({str(sprung)!r}).touch()"

    def in_unread_places(name: str, value: bytes) -> bytes:
        if "sample_inputs" in name:
            return buffer.getvalue()
        if not name.endswith("models/model.json"):
            return value
        program = json.loads(value)
        program["guards_code"] = [code]
        program["graph_module"]["graph"]["tensor_values"]["points"]["sizes"][0]["as_expr"]["expr_str"] = code
        return json.dumps(program).encode()

    place = changed(path, in_unread_places)
    torch.testing.assert_close(load_model(place).network.logits(drawn(5, 2))[0], network(drawn(5, 2)))

    def in_weights(name: str, value: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            return value.replace(b'"use_pickle": false', b'"use_pickle": true')
        return pickle.dumps(Trap(sprung)) if "/weight_" in name else value

    with pytest.raises(ValueError, match="could run code"):
        load_model(changed(path, in_weights))
    for target in ("torch.os.system", "torch.ops.aten.from_file.default", "torch.ops.aten._unsafe_index.Tensor"):
        with pytest.raises(ValueError, match=f"operator {target} is not one"):
            load_model(
                changed(path, lambda name, value, t=target: value.replace(b"torch.ops.aten.relu.default", t.encode()))
            )
    with pytest.raises(ValueError, match="compiled code"):
        load_model(changed(path, lambda name, value: value, {"data/aotinductor/model/m.so": b""}))
    assert not sprung.exists()


def test_refused_archives(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    write_network(nn.Sequential(nn.Linear(2, 3), nn.Dropout()).train(), (2,), path)
    with pytest.raises(ValueError, match="train mode"):
        load_model(str(path))
    content = path.read_bytes()
    # Sample inputs are an archive themselves: cut behind them, theirs is what is found.
    for size, sentence in ((100, "must be a whole file"), (len(content) - 200, "got 0: it may be cut short")):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=sentence):
            load_model(str(path))
    with pytest.raises(ValueError, match="does not exist"):
        load_model(str(tmp_path / "none.pt2"))


OWN = """
import torch
from torch import nn
def drawn():
    return nn.Linear(2, 3)
def filled():
    network = nn.Linear(2, 3)
    nn.init.ones_(network.weight), nn.init.zeros_(network.bias)
    return network
"""


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    source, stored = nn.Linear(2, 3), tmp_path / "w.safetensors"
    with pytest.raises(ValueError, match="only random weights"):
        load_model(f"{file}:drawn")
    assert load_model(f"{file}:filled").network.logits(torch.ones(1, 2))[0].tolist() == [[2.0, 2.0, 2.0]]
    save_file(source.state_dict(), stored)
    torch.save({"state_dict": source.state_dict()}, tmp_path / "w.pt")
    for weights in (stored, tmp_path / "w.pt"):
        model = load_model(f"{file}:drawn", weights)
        torch.testing.assert_close(model.network.logits(drawn(4, 2))[0], source(drawn(4, 2)))
    torch.save(Trap(tmp_path / "sprung"), tmp_path / "w.pt")
    with pytest.raises(ValueError, match="tensors and nothing else"):
        load_model(f"{file}:drawn", tmp_path / "w.pt")
    assert not (tmp_path / "sprung").exists()
    save_file({"weights": torch.ones(3, 2)}, stored)
    with pytest.raises(ValueError, match=r"its 'bias' must be \[3\], got none"):
        load_model(f"{file}:drawn", stored)
    with pytest.raises(ValueError, match="--weights belongs to"):
        load_model("m.onnx", stored)


def test_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    cli.main(f"train --data digits --fraction .1 --method standard --epochs 1 --out {folder}".split())
    model = load_model(str(folder), which="last")
    trial, module = trained(RunFolder(folder), "last")
    points = drawn(3, 1, 8, 8)
    assert model.run == trial
    torch.testing.assert_close(model.network.logits(points)[0], module(points))
    (folder / "figures.json").unlink()
    with pytest.raises(ValueError, match="has not finished training"):
        load_model(str(folder))
    with pytest.raises(ValueError, match="holds no run"):
        load_model(str(tmp_path / "nowhere"))
