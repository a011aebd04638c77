from pathlib import Path

import numpy as np
import pytest

from onnx_files import helper, onnx, written
from widemargin.io.load import load_model


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
