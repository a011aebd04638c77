"""Files that were made to do harm are refused in one sentence, and nothing of theirs runs."""

import io
import json
import pickle
import re
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from faults.models import Json, chain_to_a_shell, edited, first, network, node, parts, text, value, write_all, zipped
from widemargin import cli
from widemargin.io import aten
from widemargin.io.graph import LARGEST_VALUE, Graph
from widemargin.io.load import load_model

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
POINTS = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_all(folder)
    return folder


@pytest.fixture
def program(files: Path, tmp_path: Path) -> Path:
    (tmp_path / "model.pt2").write_bytes((files / "model.pt2").read_bytes())
    return tmp_path / "model.pt2"


def asked(place: str, largest: int = LARGEST_VALUE) -> None:
    found = load_model(place).network
    for module in found.modules():
        if isinstance(module, Graph):
            module.largest_value = largest
    with torch.no_grad():
        found.logits(found.encode(POINTS))


def refusal(place: str, largest: int = LARGEST_VALUE) -> str:
    with pytest.raises(ValueError, match=r".") as refused:
        asked(place, largest)
    said = str(refused.value)
    assert said.isprintable()
    assert len(said) < 1_000
    return said


def test_no_file_reaches_a_shell(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sprung = tmp_path / "sprung"
    place = edited(program, chain_to_a_shell(f"touch {sprung}"))
    assert "operator torch.ops.aten.sgn.__getattribute__ is not one that is run from a file" in refusal(place)
    for words in (f"audit {place} --data digits --eps .1", f"calibrate {place} --data digits"):
        with pytest.raises(SystemExit) as stopped:
            cli.main([*words.split(), "--out", str(tmp_path / "out")])
        assert stopped.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not sprung.exists()
    assert not (tmp_path / "out").exists()


TARGETS = [
    "torch.ops.aten.save.default",
    "torch.ops.aten.sgn.__call__",
    "torch.ops.aten.relu.__class__",
    "torch.ops.aten.relu.out",
    "torch.ops.aten.relu",
    "torch.ops.aten.relu.default.__call__",
    "torch.ops.aten.from_file.default",
    "torch.ops.aten.segment_reduce.default",
    "torch.ops.aten.as_strided.default",
    "torch.ops.aten.empty.memory_format",
    "torch.ops.aten.set_.source_Storage_storage_offset",
    "torch.ops.aten.resize_.default",
    "torch.ops.aten.copy_.default",
    "torch.ops.aten._unsafe_index.Tensor",
    "torch.ops.prim.ImplicitTensorToNum.default",
    "torch.ops.higher_order.cond",
    "torch.os.system",
    "_operator.getitem",
    "_operator.attrgetter",
    "builtins.eval",
    "\x1b]0;title\x07",
    "",
]


@pytest.mark.parametrize("target", TARGETS)
def test_an_operator_outside_the_table_is_refused_by_name(target: str, program: Path) -> None:
    unsafe = {"unsafe": {"as_bool": True}} if "segment" in target else {}
    said = refusal(edited(program, first(node(target, "more", value("input"), **unsafe))))
    assert "is not one that is run from a file" in said
    assert target.replace("\x1b", "?").replace("\x07", "?") in said


def test_operators_of_the_table_write_nothing_and_open_nothing() -> None:
    for run in (*aten.OPERATORS.values(), *aten.OVERWRITING.values()):
        if isinstance(run, torch._ops.OpOverload):
            written = [entry.name for entry in run._schema.arguments if entry.alias_info and entry.alias_info.is_write]
            assert not written, run
            assert {entry.name for entry in run._schema.arguments}.isdisjoint({"unsafe", "filename", "generator"}), run
            assert torch.Tag.nondeterministic_seeded not in run.tags or "dropout" in str(run._schema), run


def test_what_overwrites_is_replaced_or_refused(program: Path) -> None:
    def overwriting(taken: str) -> Callable[[Json], None]:
        return first(node("torch.ops.aten.add_.Tensor", "more", self=value(taken), other={"as_float": 1.0}))

    for taken in ("input", "p_0_weight", "b_1_running_mean"):
        assert "overwrites a value that may be read elsewhere" in refusal(edited(program, overwriting(taken)))

    def inplace(found: Json) -> None:
        for step in found["graph_module"]["graph"]["nodes"]:
            step["target"] = step["target"].replace("relu.default", "relu_.default")

    before = POINTS.clone()
    found = load_model(edited(program, inplace)).network
    torch.testing.assert_close(found.logits(found.encode(POINTS))[0], network()(before))
    torch.testing.assert_close(POINTS, before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("meta", "sentence"),
    [
        ({"storage_offset": {"as_int": 5}}, "must lie within its 72"),
        ({"storage_offset": {"as_int": -1}}, "a size must be a whole number from 0 on, got -1"),
        ({"strides": [{"as_int": 10**6}, {"as_int": 1}]}, "must lie within its 72"),
        ({"strides": [{"as_int": -72}, {"as_int": 1}]}, "a size must be a whole number"),
        (
            {"sizes": [{"as_int": 10**9}, {"as_int": 10**9}], "strides": [{"as_int": 0}, {"as_int": 0}]},
            "must lie within",
        ),
        ({"sizes": [{"as_int": 2**62}, {"as_int": 2**62}]}, "must lie within"),
        ({"sizes": [{"as_int": "10"}, {"as_int": 72}]}, "a size must be a whole number from 0 on, got '10'"),
        ({"sizes": [{"as_int": 720}]}, "as many strides as sizes"),
        ({"dtype": 99}, "must be a whole file"),
        (None, "is an object of Python, whose reading could run code"),
    ],
)
def test_weights_lie_within_their_bytes(meta: Any, sentence: str, program: Path) -> None:
    def edit(config: Json) -> None:
        payload = config["config"]["4.weight"]
        payload["tensor_meta"] = meta if meta is None else payload["tensor_meta"] | meta

    assert sentence in refusal(edited(program, edit, "data/weights/model_weights_config.json"))


def test_what_a_pickle_says_is_not_done(program: Path, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "sprung",)

    stored = io.BytesIO()
    torch.save({"tensor": Trap()}, stored)
    repeated = io.BytesIO()
    torch.save(torch.zeros(1).expand(10**12), repeated)
    for content in (pickle.dumps(Trap()), stored.getvalue(), repeated.getvalue()):
        named = {
            name: content if "/weight_" in name else held.replace(b'"use_pickle": false', b'"use_pickle": true')
            for name, held in parts(program).items()
        }
        refusal(zipped(program.with_name("pickled.pt2"), named))
    assert not (tmp_path / "sprung").exists()


SIZES = {"as_ints": [2**20, 2**20]}
LARGE = [
    (node("torch.ops.aten.full.default", "more", size=SIZES, fill_value={"as_float": 1.0}), "would make"),
    (node("torch.ops.aten.expand.default", "more", self=value("input"), size={"as_ints": [10**7, 2, 1, 8, 8]}), "make"),
    (node("torch.ops.aten.repeat.default", "more", self=value("input"), repeats=SIZES), "cannot be computed"),
    (node("torch.ops.aten.pad.default", "more", self=value("input"), pad={"as_ints": [2**30] * 2}), "would make"),
    (node("torch.ops.aten.arange.default", "more", end={"as_int": 2**40}), "would make"),
    (node("torch.ops.aten.full.default", "more", size={"as_ints": [10**30]}), "plain numbers"),
    (node("torch.ops.aten.add.Tensor", "more", self=value("input"), other={"as_operator": "eval"}), "given operator"),
    (node("torch.ops.aten.add.Tensor", "more", self=value("input"), other=text("1")), "cannot be computed"),
    (node("_operator.mul", "more", {"as_ints": [0]}, {"as_int": 2**40}), "it is for numbers alone"),
    (node("_operator.mul", "more", {"as_int": 2**62}, {"as_int": 2**62}), "more than 64 bits"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "sentence"), LARGE, ids=[f"{i} {more['target']}" for i, (more, _) in enumerate(LARGE)]
)
def test_what_is_too_large_is_not_made(more: Json, sentence: str, program: Path) -> None:
    assert sentence in refusal(edited(program, first(more)))


def test_values_that_double_end_at_a_limit(program: Path) -> None:
    names = ["input", *(f"more{i}" for i in range(40))]
    double = [
        node("torch.ops.aten.cat.default", after, tensors={"as_tensors": [{"name": before}] * 2}, dim={"as_int": 1})
        for before, after in pairwise(names)
    ]
    assert "more than 1,048,576" in refusal(edited(program, first(*double)), 2**20)


def test_archives_that_unpack_to_too_much(program: Path, tmp_path: Path) -> None:
    content = parts(program)
    (name,) = [name for name in content if name.endswith("models/model.json")]
    (root,) = {name.split("/")[0] for name in content}
    bomb = {**content, f"{root}/data/more": bytes(2**25)}
    assert "unpack to at most 100 times its size" in refusal(zipped(tmp_path / "m.pt2", bomb, zipfile.ZIP_DEFLATED))
    deep = content | {name: b"[" * 10**6}
    assert "nested too deeply" in refusal(zipped(tmp_path / "m.pt2", deep))
    config = next(name for name in content if name.endswith("model_weights_config.json"))
    said = json.loads(content[config])
    said["config"] |= {f"again{i}": said["config"]["4.weight"] for i in range(20_000)}
    often = content | {config: json.dumps(said).encode()}
    assert "read too often" in refusal(zipped(tmp_path / "m.pt2", often, zipfile.ZIP_DEFLATED))
    many = edited(program, first(*[{}] * 100_001))
    assert "at most 100,000 operators" in refusal(many)


def written(path: Path, nodes: list[Any], stored: dict[str, np.ndarray] | None = None, **more: Any) -> str:
    given, answer = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", *sizes])
        for name, sizes in (("x", (1, 8, 8)), ("y", ()))
    )
    tensors = [numpy_helper.from_array(value, name) for name, value in (stored or {}).items()]
    graph = helper.make_graph(nodes, "graph", [given], [answer], tensors)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, **more), path)
    return str(path)


ONNX = {
    "expand": ([("Expand", ["x", "s"], {})], {"s": np.array([10**7, 1, 1, 8, 8])}, "would make"),
    "tiled": ([("Reshape", ["x", "s"], {})], {"s": np.zeros(10**6, np.int64)}, "at most 64 whole numbers"),
    "pads": ([("MaxPool", ["x"], {"kernel_shape": [1, 1], "pads": [2**20] * 4})], {}, "would make"),
    "outer": ([("Reshape", ["x", "s"], {}), ("Add", ["n0", "w"], {})],
              {"s": np.array([-1, 1]), "w": np.zeros(2**14, np.float32)}, "would make"),
    "power": ([("Gather", ["x", "i"], {"axis": 3})], {"i": np.zeros(2**17, np.int64)}, "would make"),
    "values": ([("Cast", ["x"], {"to": 7}), ("Expand", ["x", "n0"], {})], {}, "must not depend on its input's values"),
    "kinds": ([("MaxPool", ["x"], {"kernel_shape": "text"})], {}, "cannot be computed"),
}  # fmt: skip


@pytest.mark.parametrize("name", ONNX)
def test_onnx_that_would_make_too_much(name: str, tmp_path: Path) -> None:
    calls, stored, sentence = ONNX[name]
    outputs = [*(f"n{i}" for i in range(len(calls) - 1)), "y"]
    nodes = [
        helper.make_node(kind, given, [out], **more) for (kind, given, more), out in zip(calls, outputs, strict=True)
    ]
    assert sentence in refusal(written(tmp_path / "m.onnx", nodes, stored), 2**20)


def test_onnx_functions_are_counted_before_they_are_written_out(tmp_path: Path) -> None:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]

    def function(number: int, called: str, domain: str) -> Any:
        nodes = [
            helper.make_node(called, ["a"], ["b"], domain=domain),
            helper.make_node(called, ["b"], ["c"], domain=domain),
        ]
        return helper.make_function("own", f"f{number}", ["a"], ["c"], nodes, imports)

    levels = [function(0, "Relu", ""), *(function(i, f"f{i - 1}", "own") for i in range(1, 31))]
    call = [helper.make_node("f30", ["x"], ["y"], domain="own")]
    assert "at most 100,000 operators" in refusal(written(tmp_path / "m.onnx", call, functions=levels))
    itself = [function(30, "f30", "own")]
    assert "must not call themselves" in refusal(written(tmp_path / "m.onnx", call, functions=itself))
    few = [function(0, "Relu", ""), *(function(i, f"f{i - 1}", "own") for i in range(1, 4))]
    flat = [helper.make_node("f3", ["x"], ["z"], domain="own"), helper.make_node("Flatten", ["z"], ["y"])]
    asked(written(tmp_path / "m.onnx", flat, functions=few))


def test_onnx_weights_that_lie_elsewhere(tmp_path: Path) -> None:
    place = written(tmp_path / "m.onnx", [helper.make_node("Add", ["x", "w"], ["y"])], {"w": np.ones(8, np.float32)})
    model = onnx.load(place)
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], "weights.bin", offset=0, length=32)
    model.graph.initializer[0].ClearField("raw_data")
    Path(place).write_bytes(model.SerializeToString())
    assert "its weights are in 'weights.bin', which is not beside it" in refusal(place)
    (tmp_path / "weights.bin").write_bytes(bytes(31))
    assert "are cut short" in refusal(place)
    model.graph.initializer[0].dims[:] = [2**40]
    Path(place).write_bytes(model.SerializeToString())
    assert "at most 17,179,869,184 bytes" in refusal(place)


def test_a_file_for_other_points_is_refused_with_both_shapes(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "images.npz", x=np.zeros((40, 1, 12, 12), np.float32), y=np.arange(40) % 2)
    for suffix in (".pt2", ".onnx"):
        with pytest.raises(SystemExit):
            cli.main(f"audit {files}/model{suffix} --data {tmp_path}/images.npz --eps .1".split())
        said = capsys.readouterr().err
        assert re.search(r"points of shape \[1, 12, 12\].*takes points of shape \[1, 8, 8\]", said), said
        assert said.count("\n") == 1
