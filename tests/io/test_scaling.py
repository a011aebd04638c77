from pathlib import Path

import pytest

from widemargin.files import Damaged, read_json
from widemargin.io.scaling import fitted_to, run_scaling, write_scaling
from widemargin.runs.folder import RunFolder
from widemargin.uncertainty.scaling import Scaling

SCALING = Scaling("temperature", (0.5, 0.5), (0.0, 0.0))


def test_a_scaling_belongs_to_the_weights_it_was_fitted_to(tmp_path: Path) -> None:
    folder, best, last = RunFolder(tmp_path), tmp_path / "best.safetensors", tmp_path / "last.safetensors"
    best.write_bytes(b"best")
    last.write_bytes(b"last")
    assert run_scaling(folder, best) is None
    path = write_scaling(tmp_path, SCALING, {"n": 7, **fitted_to(best)})
    assert read_json(path)["n"] == 7
    assert run_scaling(folder, best) == SCALING
    assert run_scaling(folder, last) is None
    best.write_bytes(b"better")
    with pytest.raises(ValueError, match=r"fitted to other weights .* --fit temperature` fits it again; or delete it"):
        run_scaling(folder, best)


def test_a_damaged_scaling_is_named(tmp_path: Path) -> None:
    (tmp_path / "best.safetensors").write_bytes(b"best")
    path = write_scaling(tmp_path, SCALING, fitted_to(tmp_path / "best.safetensors"))
    for content in (path.read_text().replace("0.5", "0.6"), path.read_text()[:30], '{"kind": "vector"}'):
        path.write_text(content)
        with pytest.raises(Damaged, match=r"scaling.json is damaged .*fits it again; or delete it"):
            run_scaling(RunFolder(tmp_path), tmp_path / "best.safetensors")
