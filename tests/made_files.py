"""Small files in the official formats, made up."""

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

IDX_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def pictures(count: int, channels: int, side: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, channels, side, side), np.uint8)


def classes(count: int, of: int = 10) -> NDArray[np.uint8]:
    return (np.arange(count) % of).astype(np.uint8)


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder: Path, train: int = 600, test: int = 100, zipped: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = [pictures(train, 1, 28)[:, 0], classes(train), pictures(test, 1, 28, seed=1)[:, 0], classes(test)]
    for name, array in zip(IDX_NAMES, arrays, strict=True):
        content = idx_bytes(array)
        (folder / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(content) if zipped else content)


def cifar_bytes(pixels: NDArray[np.uint8], labels: list[int], key: str = "labels") -> bytes:
    """As Python 2 wrote it: keys and pixels are short and long byte strings, the array is numpy's of that time."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    flat = pixels.reshape(len(pixels), -1).tobytes()
    shape = b"J" + struct.pack("<i", len(pixels)) + b"J" + struct.pack("<i", pixels[0].size) + b"\x86"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b") + b"\x87R(K\x01" + shape
        + b"cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R(K\x03" + text("|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89T" + struct.pack("<i", len(flat)) + flat + b"tb"
    )  # fmt: skip
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text("data") + array + text(key) + listed + b"u."


def write_cifar10(folder: Path, each: int = 40) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        (folder / name).write_bytes(cifar_bytes(pictures(each, 3, 32, number), classes(each).tolist()))


def write_cifar100(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 400), ("test", 200)):
        # Newer programs write newer pickles.
        batch = {"data": pictures(count, 3, 32).reshape(count, -1), "fine_labels": classes(count, 100).tolist()}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=4))


def write_svhn(folder: Path, train: int = 732, test: int = 50) -> None:
    from scipy.io import savemat

    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("test", test)):
        labels = np.where(classes(count) == 0, 10, classes(count))[:, None]
        savemat(folder / f"{name}_32x32.mat", {"X": pictures(count, 3, 32).transpose(2, 3, 1, 0), "y": labels})
