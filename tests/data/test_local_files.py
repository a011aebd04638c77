"""The user's own tables and arrays: read as they are, or refused in one sentence that names the place."""

from pathlib import Path

import numpy as np
import pytest
import torch

from command import refused, widemargin
from made_files import classes
from partly import CLASSES, KNOWN, POINTS, ROWS, UDP, write_csv
from widemargin.data.local_files import Npz


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_npz_says_by_nan_or_by_a_number_of_ones_choice(capsys: pytest.CaptureFixture[str]) -> None:
    hidden = np.where(np.arange(ROWS) < KNOWN, CLASSES, -1)
    np.savez("own.npz", x=POINTS, y=hidden)
    np.savez("nan.npz", x=POINTS, y=np.where(hidden < 0, np.nan, hidden))
    assert not Npz("own.npz").read().has_unlabelled
    assert Npz("own.npz").read().names == (-1, 0, 1)
    by_number, by_nan = Npz("own.npz", unlabelled=-1).read(), Npz("nan.npz").read()
    assert by_number.names == by_nan.names == (0, 1)
    assert by_number.labels.tolist() == by_nan.labels.tolist() == hidden.tolist()
    assert eval(repr(Npz("own.npz", unlabelled=-1))) == Npz("own.npz", unlabelled=-1)
    with pytest.raises(ValueError, match="must hold -7 where there is no label, got none such"):
        Npz("own.npz", unlabelled=-7).read()
    widemargin(f"train --data own.npz {UDP} --unlabelled -1 --epochs 1 --out here")
    assert "140 of 182 training rows" in capsys.readouterr().out
    widemargin("resume here")
    write_csv()
    assert "--unlabelled is for .npz files" in refused(f"train --data own.csv {UDP} --unlabelled -1", capsys)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ((9, 1, 6, 6), (9, 1, 6, 6)),
        ((9, 6, 5), (9, 1, 6, 5)),
        ((9, 6, 5, 3), (9, 3, 6, 5)),
        ((9, 3, 6, 5), (9, 3, 6, 5)),
    ],
)
def test_npz_of_images(tmp_path: Path, given: tuple[int, ...], read: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, given, np.uint8)
    np.savez(tmp_path / "own.npz", x=array, y=classes(9, 3))
    found = Npz(str(tmp_path / "own.npz")).read()
    assert found.stored.shape == read
    assert found.stored.dtype == torch.uint8
    assert found.points.max() <= 1
    if given == (9, 6, 5, 3):
        assert np.array_equal(found.stored.numpy(), array.transpose(0, 3, 1, 2))


def test_npz_of_numbers_and_names(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(4, 2))
    np.savez_compressed(tmp_path / "own.npz", points=array, kind=np.array([["b"], ["a"], ["b"], ["c"]]))
    found = Npz(str(tmp_path / "own.npz"), x="points", y="kind").read()
    assert torch.equal(found.points, torch.from_numpy(array).float())
    assert found.labels.tolist() == [1, 0, 1, 2]
    assert found.names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 2)), "y": classes(2)}, r"as many labels .* 'x' \[3, 2\] and 'y' \[2\]"),
        ({"x": np.zeros((3, 2)), "y": np.zeros((3, 2))}, "as many labels"),
        ({"x": np.array([["a"], ["b"]]), "y": classes(2)}, "'x' of .* must hold real numbers, got <U1"),
        (
            {"x": np.zeros((2, 2)), "y": np.array([np.nan, 1])},
            "'y' of .* must have at least 2 classes, got 1",
        ),
        ({"x": np.zeros((2, 2)), "y": np.array([1j, 1])}, "'y' of .* must hold numbers or text, got complex128"),
        ({"x": np.full((2, 2), np.nan), "y": classes(2)}, "points must be finite, got NaN or infinity in row 0"),
        ({"x": np.zeros((2, 2)), "y": np.zeros(2)}, "at least 2 classes, got 0"),
        ({"x": np.zeros((2, 5, 5, 7), np.uint8), "y": classes(2)}, "1, 3 or 4 channels"),
    ],
)
def test_npz_refused(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        Npz(str(tmp_path / "own.npz")).read()
