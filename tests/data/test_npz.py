from pathlib import Path

import numpy as np
import pytest

from widemargin.data.local_files import Npz


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 2))}, "must hold the arrays 'x' and 'y', got x"),
        ({"x": np.zeros((2, 2)), "y": np.array([None, 1])}, "an .npz file of plain arrays.*allow_pickle"),
    ],
)
def test_npz_without_the_arrays(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        Npz(str(tmp_path / "own.npz")).read()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04broken", b"\x80\x04cos\nsystem\n."])
def test_npz_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "own.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"own\.npz must be an \.npz file of plain arrays"):
        Npz(str(tmp_path / "own.npz")).read()
