import zipfile
from pathlib import Path

import pytest
from torch import nn

from onnx_files import drawn, helper, written
from widemargin.io.export import write_network
from widemargin.io.load import load_model


def test_a_last_softmax_is_left_off(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["l"]), helper.make_node("Softmax", ["l"], ["y"], axis=1)]
    model = load_model(written(tmp_path / "m.onnx", nodes, sizes=(1, 3)))
    assert "softmax was left off" in model.notes[0]
    assert "exactly 1 points" in model.notes[1]
    write_network(nn.Sequential(nn.Linear(2, 3), nn.Softmax(-1)), (2,), tmp_path / "m.pt2")
    model = load_model(str(tmp_path / "m.pt2"))
    assert "softmax was left off" in model.notes[0]
    assert model.network.logits(drawn(4, 2))[0].sum(-1).sub(1).abs().max() > 1e-2


@pytest.mark.parametrize("name", ["classes", "schema"])
def test_extra_files_of_others_are_not_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    write_network(nn.Linear(2, 3).eval(), (2,), path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"model/extra/{name}.json", b"caf\xe9")
    assert load_model(str(path)).schema is None
