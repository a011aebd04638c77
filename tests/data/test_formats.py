"""The official formats are read as they are, and nothing in a file is executed."""

import gzip
import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from made_files import cifar_bytes, classes, idx_bytes, pictures, write_svhn
from widemargin.data.formats import File, cifar10, cifar100, idx, idx_pair, svhn


@pytest.mark.parametrize("zipped", [False, True])
def test_idx(tmp_path: Path, zipped: bool) -> None:
    array = pictures(7, 1, 28)[:, 0]
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(idx_bytes(array)) if zipped else idx_bytes(array))
    assert np.array_equal(idx(File.read(path)), array)


def test_idx_pair() -> None:
    array = pictures(7, 1, 5)
    pixels, labels = idx_pair(_file(idx_bytes(array[:, 0])), _file(idx_bytes(classes(7))))
    assert np.array_equal(pixels, array)
    assert labels.dtype == np.int64
    assert labels.tolist() == list(range(7))


def test_idx_pair_exchanged() -> None:
    images, labels = _file(idx_bytes(pictures(3, 1, 5)[:, 0])), _file(idx_bytes(classes(3)))
    with pytest.raises(ValueError, match="were they exchanged"):
        idx_pair(labels, images)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an IDX file of bytes, got a file that begins with nothing"),
        (b"\0\0\x08", "an IDX file of bytes"),
        (b"\0\0\x0d\x01\0\0\0\x01abcd", "an IDX file of bytes"),
        (b"\0\0\x08\x03\0\0", "an IDX file of bytes"),
        (idx_bytes(pictures(2, 1, 4)[:, 0])[:-1], r"48 bytes for shape \[2, 4, 4\], got 47"),
        (idx_bytes(pictures(2, 1, 4)[:, 0]) + b"x", r"48 bytes for shape \[2, 4, 4\], got 49"),
    ],
)
def test_idx_damaged(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        idx(_file(content))
    assert "some/file" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("kept", [5, 100, -9, -1])
def test_gzip_cut_off(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(idx_bytes(pictures(9, 1, 28)[:, 0]))[:kept])
    with pytest.raises(ValueError, match=r"cut\.gz must hold a whole gzip file, .* delete or replace it"):
        File.read(path)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must be a file, got a folder"):
        File.read(tmp_path)


def test_cifar_of_python_2() -> None:
    array = pictures(4, 3, 32)
    pixels, labels = cifar10(_file(cifar_bytes(array, [3, 1, 4, 1])), _file(cifar_bytes(array[:1], [5])))
    assert np.array_equal(pixels, np.concatenate([array, array[:1]]))
    assert labels.tolist() == [3, 1, 4, 1, 5]


@pytest.mark.parametrize("arranged", [np.ascontiguousarray, np.asfortranarray])
def test_cifar_of_python_3(arranged: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]) -> None:
    array = pictures(2, 3, 32)
    flat = arranged(array.reshape(2, -1))
    pixels, labels = cifar100(_file(pickle.dumps({"data": flat, "fine_labels": [7, 99]}, protocol=4)))
    assert np.array_equal(pixels, array)
    assert labels.tolist() == [7, 99]


@pytest.mark.parametrize("kept", [0, 1, 50, 3000, -1])
def test_cifar_cut_off(kept: int) -> None:
    with pytest.raises(ValueError, match=r"some/file must hold a CIFAR batch with data and labels, .* cut off"):
        cifar10(_file(cifar_bytes(pictures(2, 3, 32), [1, 2])[:kept]))


def test_cifar_wants_a_label_for_every_image() -> None:
    with pytest.raises(ValueError, match="one label for every image, got 2 images and 1 labels"):
        cifar10(_file(cifar_bytes(pictures(2, 3, 32), [1])))


def test_svhn(tmp_path: Path) -> None:
    write_svhn(tmp_path, train=25)
    pixels, labels = svhn(File.read(tmp_path / "train_32x32.mat"))
    assert np.array_equal(pixels, pictures(25, 3, 32))
    assert labels.tolist() == classes(25).tolist()


@pytest.mark.parametrize("kept", [0, 100, 5000, -20])
def test_svhn_cut_off(tmp_path: Path, kept: int) -> None:
    write_svhn(tmp_path, train=25)
    with pytest.raises(ValueError, match=r"some/file must hold a \.mat file with X and y"):
        svhn(_file((tmp_path / "train_32x32.mat").read_bytes()[:kept]))


def test_svhn_of_another_kind(tmp_path: Path) -> None:
    from scipy.io import savemat

    savemat(tmp_path / "x.mat", {"X": np.zeros((2, 2)), "y": np.zeros((2, 1))})
    with pytest.raises(ValueError, match="X of bytes with 4 axes"):
        svhn(File.read(tmp_path / "x.mat"))


def test_what_unzips_to_too_much(tmp_path: Path) -> None:
    from scipy.io import savemat

    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\0" * 200_000))
    with pytest.raises(ValueError, match=r"bomb\.gz must hold at most 100,000 bytes once unzipped, got more"):
        File.read(path, most=100_000)
    packed = io.BytesIO()
    savemat(packed, {"X": np.zeros((32, 32, 3, 50), np.uint8), "y": np.ones((50, 1))}, do_compression=True)
    with pytest.raises(ValueError, match="more than 100,000 bytes once unzipped"):
        svhn(_file(packed.getvalue()), most=100_000)


def _file(content: bytes) -> File:
    return File(Path("some/file"), content)
