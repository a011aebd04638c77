"""Files that were made to hang, to fill the memory, to run something, or to be misunderstood."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import socket
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as arrow
from PIL import Image
from pyarrow import parquet

from made_files import idx_bytes, write_cifar10, write_idx, write_svhn

_ZEROS = 16 << 20


@dataclass(frozen=True)
class Hostile:
    """`make` puts it into a folder and returns what --data says; `said` must be in the one sentence that refuses it."""

    name: str
    make: Callable[[Path], str]
    said: str
    words: str = ""
    slow: bool = False
    """It has to be read up to the limit before it can be refused."""


def _csv(text: str | bytes) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        (folder / "own.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
        return "own.csv"

    return make


def _labels(*labels: object) -> Callable[[Path], str]:
    return _csv("a,label\n" + "".join(f"{k},{label}\n" for k, label in enumerate(labels)))


def _npz(**arrays: object) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        np.savez(folder / "own.npz", **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]
        return "own.npz"

    return make


def _npz_of(x: bytes, method: int = zipfile.ZIP_DEFLATED, claimed: int | None = None) -> Callable[[Path], str]:
    """`x` stands where an array should; the archive may claim another length."""

    def make(folder: Path) -> str:
        labels, content = io.BytesIO(), io.BytesIO()
        np.save(labels, np.array([0, 1]))
        with zipfile.ZipFile(content, "w", method) as file:
            file.writestr("x.npy", x)
            file.writestr("y.npy", labels.getvalue())
        packed = content.getvalue()
        if claimed is not None:
            place = packed.index(b"PK\x01\x02") + 24
            packed = packed[:place] + struct.pack("<I", claimed) + packed[place + 4 :]
        (folder / "own.npz").write_bytes(packed)
        return "own.npz"

    return make


def _npy(shape: str, kind: str = "'<f8'") -> bytes:
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


class _Command:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("executed",)


def _npz_pickle(folder: Path) -> str:
    np.savez(folder / "own.npz", x=np.zeros((2, 1)), y=np.array([_Command(), 1], object), allow_pickle=True)
    return "own.npz"


def _parquet_bomb(folder: Path) -> str:
    column = arrow.nulls(70_000_000, arrow.int8())
    parquet.write_table(arrow.table({"a": column, "label": column}), folder / "own.parquet")
    return "own.parquet"


def _parquet_of_long_texts(folder: Path) -> str:
    """One text of 1 MB in every row: 200 GB, if each row had its own."""
    text = arrow.DictionaryArray.from_arrays(np.arange(200_000) % 2, arrow.array(["x" * 1_000_000, "y"]))
    parquet.write_table(arrow.table({"a": np.zeros(200_000, np.int8), "label": text}), folder / "own.parquet")
    return "own.parquet"


def _folder(name: str, content: bytes | Callable[[Path], object]) -> Callable[[Path], str]:
    """Two classes of images, and this among them."""

    def make(folder: Path) -> str:
        for path in (folder / "images" / "a" / "1.png", folder / "images" / "b" / "2.png"):
            path.parent.mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(path)
        place = folder / "images" / name
        if isinstance(content, bytes):
            place.write_bytes(content)
        else:
            content(place)
        return "images"

    return make


def _socket(path: Path) -> None:
    # A path that is longer than a socket's may be.
    here = os.getcwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def _huge_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _written(content: Callable[[], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content())


def _png_bomb() -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 50_000, 50_000, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * _ZEROS)) + chunk(b"IEND", b"")


def _jpeg_of_many_scans() -> bytes:
    file = io.BytesIO()
    Image.new("L", (4_000, 4_000)).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    place = content.rindex(b"\xff\xda")
    return content[:place] + content[place:-2] * 2_000 + b"\xff\xd9"


def _picture(side: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


Content = bytes | Callable[[], bytes]


def _published(
    kind: Callable[[Path], None], place: str, file: str, content: Content, word: str
) -> Callable[[Path], str]:
    """A published set of which one file is this."""

    def make(folder: Path) -> str:
        kind(folder / place)
        for old in (folder / place).glob(f"{file}*"):
            old.unlink()
        (folder / place / file).write_bytes(content if isinstance(content, bytes) else content())
        return word

    return make


def _cifar(content: Content) -> Callable[[Path], str]:
    def few(folder: Path) -> None:
        write_cifar10(folder, each=2)

    return _published(few, "cifar-10-batches-py", "data_batch_1", content, "cifar-10")


def _mnist(content: Content) -> Callable[[Path], str]:
    def few(folder: Path) -> None:
        write_idx(folder, train=20, test=10)

    return _published(few, "mnist", "train-images-idx3-ubyte", content, "mnist")


def _svhn(content: Content) -> Callable[[Path], str]:
    def few(folder: Path) -> None:
        write_svhn(folder, train=20, test=10)

    return _published(few, "svhn", "train_32x32.mat", content, "svhn")


def _mat(*elements: bytes) -> bytes:
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"".join(elements)


def _element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content


def _cells(depth: int) -> bytes:
    """A cell in a cell in a cell."""
    flags, sizes, name = _element(6, struct.pack("<II", 1, 0)), _element(5, struct.pack("<ii", 1, 1)), _element(1, b"")
    inside = flags + sizes + name
    lengths = [level * (len(inside) + 8) - 8 for level in range(depth, 0, -1)]
    return b"".join(struct.pack("<II", 14, length) + inside for length in lengths)


def _gzip_bomb() -> bytes:
    return gzip.compress(b"\0" * _ZEROS) * 80


def _mat_bomb() -> bytes:
    """As many zeros as it takes, in pieces that are quickly made: a stream that is flushed can be repeated."""
    packer = zlib.compressobj()
    start = packer.compress(struct.pack("<II", 14, (2 << 30) - 8)) + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(b"\0" * _ZEROS) + packer.flush(zlib.Z_FULL_FLUSH)
    return _mat(_element(15, start + piece * 128))


def _doubled() -> bytes:
    """Lists of two that are the same list: 2 ** 40 labels."""
    labels: list[object] = [0, 1]
    for _ in range(40):
        labels = [labels, labels]
    return pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": labels}, protocol=4)


def _tuples(levels: int) -> bytes:
    """A key that is a pair of pairs of pairs: to hash it takes 2 ** levels steps."""
    return b"\x80\x02}(" + b")" + b"q\x00h\x00\x86" * levels + b"K\x01u."


def _pipe(folder: Path) -> str:
    os.mkfifo(folder / "own.csv")
    return "own.csv"


def _device(folder: Path) -> str:
    (folder / "own.csv").symlink_to("/dev/zero")
    return "own.csv"


def _loop(folder: Path) -> str:
    (folder / "own.csv").symlink_to("own.csv")
    return "own.csv"


def _sparse(name: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        _huge_sparse(folder / name)
        return name

    return make


def _not_a_folder(folder: Path) -> str:
    (folder / "own.npz").mkdir()
    return "own.npz"


_WIDE = "\n".join([",".join([*(f"f{k}" for k in range(20_000)), "kind"]), *[",".join(["0"] * 20_001)] * 3])
LABELS = (
    Hostile("numbers too large", _labels(1, 10**30, 2), "own.csv must hold whole numbers below"),
    Hostile("infinite", _labels("inf", 1, 2, 1), "own.csv must hold finite numbers or names, got 'inf'"),
    Hostile("continuous", _labels(*(k / 7 for k in range(50))), "50 different values in 50 rows: name the column"),
    Hostile("a long name", _labels("x" * 20_000, "y"), "at most 1,000 characters, got 20,000"),
    Hostile("no features", _csv("label\n0\n1\n"), "at least one column besides 'label', got none"),
    Hostile("another column", _csv("a,b\n0,1\n"), "'label' of labels, got a, b: name yours with --label"),
    Hostile("infinite in .npz", _npz(x=np.ones((3, 1)), y=[np.inf, 0, 1]), "must hold finite numbers or names"),
    Hostile("too large in .npz", _npz(x=np.ones((3, 1)), y=[1e30, 0, 1]), "must hold whole numbers below"),
    Hostile("too large for us", _npz(x=np.ones((2, 1)), y=np.array([0, 2**64 - 1], "u8")), "whole numbers below"),
    Hostile("continuous in .npz", _npz(x=np.ones((99, 1)), y=np.arange(99) / 3), "99 different values in 99 rows"),
    Hostile("no features in .npz", _npz(x=np.ones((4, 0)), y=[0, 1, 0, 1]), "at least one feature, got none"),
    Hostile("no pixels in .npz", _npz(x=np.ones((4, 3, 0, 5), "u1"), y=[0, 1, 0, 1]), "at least one feature"),
    Hostile("no such number", _npz(x=np.ones((4, 1)), y=[0, 1, 0, 1]), "leave out --unlabelled", "--unlabelled -1"),
)
FILES = (
    Hostile("a long cell", _csv("a,label\n" + "1,0\n" * 50_000 + "9" * 20_000 + "x,1\n"), "must hold numbers, got '99"),
    Hostile("20,000 columns", _csv(_WIDE), "f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, ... (20,001 in all)"),
    Hostile("200,000 columns", _csv(",".join(map(str, range(200_000))) + "\n1\n"), "at most 100,000 columns"),
    Hostile("an endless quote", _csv('a,label\n"' + "x" * 300_000), "separated values, got Error: field larger"),
    Hostile("an endless line", _csv(b"," * (17 << 20)), "a line of more than 16,777,216 characters"),
    Hostile("bytes", _csv(bytes(range(256))), "must be a text file of separated values"),
    Hostile("a pipe", _pipe, "own.csv must be a file, got a pipe"),
    Hostile("a device", _device, "must be a file, got a device"),
    Hostile("a link to itself", _loop, "--data must be one of"),
    Hostile("a folder", _not_a_folder, "own.npz must be a file, got a folder"),
    Hostile("a terabyte of table", _sparse("own.csv"), "at most 34,359,738,368 bytes, got 1,099,511,627,776"),
    Hostile("a terabyte of array", _sparse("own.npz"), "at most 34,359,738,368 bytes"),
    Hostile("a pickle in .npz", _npz_pickle, "must be an .npz file of plain arrays, got ValueError: Python objects"),
    Hostile("a zip bomb", _npz_of(_npy("(2, 1)"), claimed=0xF0000000), "must unpack to at most"),
    Hostile("a long shape", _npz_of(_npy("(2, 1000000000)") + b"\0" * 99), "a header of shape [2, 1000000000]"),
    Hostile("no bytes each", _npz_of(_npy("(1000000000000,)", "'<U0'")), "a header of shape [1000000000000]"),
    Hostile("a deep header", _npz_of(_npy("(" * 3_000)), "must be an .npz file of plain arrays"),
    Hostile("bzip2 in .npz", _npz_of(_npy("(2, 1)"), zipfile.ZIP_BZIP2), "a compression that numpy does not write"),
    Hostile("numbers of 1e300", _npz(x=np.full((2, 1), 1e300), y=[0, 1]), "points must be finite"),
    Hostile("a parquet bomb", _parquet_bomb, "must unpack to at most"),
    Hostile("a text in all rows", _parquet_of_long_texts, "at most 1,000 characters, got 1,000,000"),
    Hostile("a pipe among images", _folder("a/0.png", os.mkfifo), "a/0.png must be a file, got a pipe"),
    Hostile("a socket among images", _folder("a/0.png", _socket), "a/0.png must be a file, got a socket"),
    Hostile("a folder among images", _folder("a/0.png", os.mkdir), "a/0.png must be a file, got a folder"),
    Hostile("a loop of folders", _folder("loop", lambda p: p.symlink_to(".")), "must be a file, got a folder"),
    Hostile("a broken link", _folder("a/0.png", lambda p: p.symlink_to("no")), "a/0.png must be readable, got No such"),
    Hostile("a terabyte of image", _folder("a/0.png", _huge_sparse), "a/0.png must have at most 1,073,741,824 bytes"),
    Hostile("a png bomb", _folder("a/0.png", _written(_png_bomb)), "a/0.png must be a whole image"),
    Hostile("a jpeg bomb", _folder("a/0.jpg", _written(_jpeg_of_many_scans)), "a/0.jpg must have at most 100 scans"),
    Hostile("a cut image", _folder("a/0.png", _picture(64)[:5_000]), "a/0.png must be a whole image"),
    Hostile("an image of another size", _folder("b/3.png", _picture(9)), "9 x 9 (height x width): give --size HEIGHT"),
    Hostile("a name of two lines", _folder("a/0\n0.png", b"hello"), "must be a whole image"),
    Hostile("a huge --size", _folder("b/3.png", _picture(9)), "--size must be", "--size 100000 100000"),
    Hostile("a huge memo index", _cifar(b"\x80\x02}r\xff\xff\xff\xff."), "must hold a CIFAR batch with data"),
    Hostile("a huge length", _cifar(b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40)), "must hold a CIFAR batch with data"),
    Hostile("a key of pairs", _cifar(_tuples(60)), "got ValueError: a mapping without names"),
    Hostile("a command", _cifar(pickle.dumps(_Command())), "asks to run posix.mkdir"),
    Hostile("endless opcodes", _cifar(lambda: b"\x80\x02}" + b"K\0" * 2_500_000), "must hold a CIFAR batch", slow=True),
    Hostile("labels in lists", _cifar(_doubled), "got ValueError: labels that are no list of whole numbers"),
    Hostile("a gzip bomb", _mnist(_gzip_bomb), "at most 1,073,741,824 bytes once unzipped", slow=True),
    Hostile("4 billion images", _mnist(b"\0\0\x08\x03" + b"\xff" * 12), "got shape [4294967295, 4294967295, 429"),
    Hostile("no image at all", _mnist(idx_bytes(np.zeros((0, 9, 9), "u1"))), "0 images and 20 labels"),
    Hostile("a .mat bomb", _svhn(_mat_bomb), "got ValueError: more than 1,073,741,824 bytes", slow=True),
    Hostile("a long .mat", _svhn(_mat(struct.pack("<II", 14, 1 << 31))), "got ValueError: a file that is cut off"),
    Hostile("cells in cells", _svhn(lambda: _mat(_cells(20_000))), "got ValueError: something else than an array"),
)  # fmt: skip
DESCRIPTIONS = {
    "a bomb of aliases": "a0: &a0 [x, x]\n" + "".join(f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]\n" for k in range(1, 40)),
    "what is inside of itself": "run: &a {Run: *a}\n",
    "100,000 lists": "run: " + "[" * 100_000,
    "a mapping in a mapping": "".join(f"{' ' * k}a:\n" for k in range(500)),
    "damaged": "run: {Run: [\n\x00",
    "a command": "run: !!python/object/apply:os.mkdir [executed]\n",
    "a wrong date": "run: 2020-99-99\n",
    "a number of 60s": "run: " + ":".join(["1"] * 100_000) + "\n",
    "a number too long": "run: " + "9" * 100_000 + "\n",
    "a part in a name": "run: {Objective: [[1.0, [a]]]}\n",
    "a large weight": "run: {Objective: [[1" + "0" * 400 + ", clean_loss]]}\n",
    "a long name": "run: {" + "x" * 100_000 + ": 1}\n",
    "a terabyte": "",
}
