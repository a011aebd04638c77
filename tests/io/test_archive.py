import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from widemargin.io.export import write_network
from widemargin.io.load import load_model
from widemargin.networks.mlp import MLPSpec


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed))


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
