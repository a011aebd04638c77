"""What comes back from a file is the network that was written; what is not a network is refused in one sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Generator, Tensor, nn

from widemargin import cli
from widemargin.data.columns import NumberColumn
from widemargin.data.schema import Schema
from widemargin.io.export import trained
from widemargin.io.load import Model, load, load_model
from widemargin.runs.folder import RunFolder


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed))


class Trap:
    """Reading it in the way of pickle makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


SCHEMA = Schema("kind", ("a", "b", "c"), tuple(NumberColumn(name, 0.0, 1.0, 0.5, 0.5, 0.5) for name in "xy"))


def test_weights_that_know_their_table(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    place, weights = f"{tmp_path}/own.py:drawn", tmp_path / "w.safetensors"
    described = {"classes": json.dumps(SCHEMA.classes), "schema": json.dumps(SCHEMA.to_dict())}
    save_file(nn.Linear(2, 3).state_dict(), weights, {"format": "pt", **described, "scaling": "{}"})
    model = load_model(place, weights)
    assert model.schema == SCHEMA
    assert model.classes == ("a", "b", "c")
    assert model.notes == ("the scaling in the metadata of its weights is not applied",)
    save_file(nn.Linear(2, 3).state_dict(), weights, {**described, "schema": "{}"})
    with pytest.raises(ValueError, match=r"w.safetensors cannot be audited: the schema in its metadata is wrong"):
        load_model(place, weights)
    save_file(nn.Linear(2, 3).state_dict(), weights, {"schema": "of another program"})
    assert load_model(place, weights).schema is None


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


def test_metadata_of_an_onnx_file_is_ours_or_of_no_interest(tmp_path: Path) -> None:
    onnx, files = pytest.importorskip("onnx"), pytest.importorskip("onnx_files")
    stored = {"m": np.full(2, 0.5, np.float32), "w": np.ones((2, 3), np.float32)}
    nodes = [onnx.helper.make_node("Sub", ["x", "m"], ["c"]), onnx.helper.make_node("Div", ["c", "m"], ["f"])]
    layer = onnx.helper.make_node("MatMul", ["f", "w"], ["y"])
    place = files.written(tmp_path / "m.onnx", [*nodes, layer], stored, sizes=("batch", 2))

    def described(**texts: str) -> Model:
        model = onnx.load(place)
        del model.metadata_props[:]
        onnx.helper.set_model_props(model, texts)
        onnx.save(model, place)
        return load_model(place)

    points = drawn(4, 2)
    raw = described().network.logits(points)[0]
    for texts in ({"schema": "of another program"}, {"classes": "cat dog"}, {"schema ": "{}", "classes": "[]"}):
        other = described(**texts)
        assert other.schema is None
        assert torch.equal(other.network.logits(points)[0], raw)
    ours = described(classes="[]", schema=json.dumps(SCHEMA.to_dict()))
    assert ours.schema == SCHEMA
    assert torch.equal(ours.network.logits((points - 0.5) / 0.5)[0], raw)
    assert torch.equal(load(place)(points), raw)
    wrong, untrue = {**SCHEMA.to_dict(), "label": "x"}, SCHEMA.to_dict()
    untrue["columns"][0]["scale"] = 2.0
    sentences = {"{": "must be JSON", json.dumps(wrong): "different names", json.dumps(untrue): "nothing in it encodes"}
    for text, message in sentences.items():
        with pytest.raises(ValueError, match=rf"m.onnx cannot be audited: .*{message}"):
            described(classes="[]", schema=text)


def test_weights_of_data_parallel_and_of_whole_models(tmp_path: Path) -> None:
    place = f"{tmp_path / 'mine.py'}:Mine"
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nclass Mine(nn.Linear):\n    def __init__(self): super().__init__(2, 2)\n"
    )
    network = nn.Linear(2, 2)
    torch.save(nn.DataParallel(network).state_dict(), tmp_path / "parallel.pt")
    model = load_model(place, tmp_path / "parallel.pt")
    points = torch.rand(3, 2)
    torch.testing.assert_close(model.network.logits(points)[0], network(points))
    torch.save(network, tmp_path / "whole.pt")
    with pytest.raises(ValueError, match=r"got a pickled object, such as a whole model: save network.state_dict\(\)$"):
        load_model(place, tmp_path / "whole.pt")


def test_what_is_no_model_gets_advice(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"zoo:NAME.*got fashion-lenet-udp: did you mean zoo:fashion-lenet-udp\?"):
        load_model("fashion-lenet-udp")
    weights = tmp_path / "x.safetensors"
    weights.write_bytes(b"")
    with pytest.raises(ValueError, match=r"name its network, my_file.py:MyNet --weights .*x.safetensors"):
        load_model(str(weights))
