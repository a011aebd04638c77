"""Files of every kind that is read, changed at random; each must become data or be refused in one sentence."""

from __future__ import annotations

import gzip
import io
import random
import shutil
import signal
import sys
import time
import traceback
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import NoneType

import numpy as np

from faults.commands import processes
from faults.limited import limit_memory
from widemargin.files import Damaged

_SECONDS = 20
"""After which a single file counts as one that hangs."""


@dataclass(frozen=True)
class Target:
    """`seeds` are good files, `write` puts a changed one into a folder, `read` reads what is there."""

    name: str
    seeds: Callable[[], list[bytes]]
    write: Callable[[Path, bytes], Path]
    read: Callable[[Path], object]


def fuzzed(target: Target, folder: Path, count: int, seconds: float, seed: int = 0) -> int:
    """How many files were tried, in a process whose memory and time are bounded."""
    folder.mkdir(parents=True, exist_ok=True)
    process = processes().Process(target=_child, args=(target.name, folder, count, seconds, seed))
    process.start()
    process.join(seconds + 60)
    if process.exitcode != 0:
        process.kill()
        said = (folder / "said.txt").read_text()[-3000:] if (folder / "said.txt").exists() else ""
        raise AssertionError(f"{target.name} ended with {process.exitcode}; its last file is in {folder}: {said}")
    return int((folder / "tried.txt").read_text())


def _child(name: str, folder: Path, count: int, seconds: float, seed: int) -> None:
    limit_memory()
    target = next(target for target in TARGETS if target.name == name)
    begun, tried, chance, seeds = time.monotonic(), 0, random.Random(seed), target.seeds()
    while tried < count and (tried == 0 or time.monotonic() - begun < seconds):
        shutil.rmtree(folder / "data", ignore_errors=True)
        (folder / "data").mkdir()
        path = target.write(folder / "data", changed(chance.choice(seeds), chance))
        signal.alarm(_SECONDS)
        try:
            check(target, path)
        except BaseException:
            (folder / "said.txt").write_text(traceback.format_exc())
            sys.exit(1)
        signal.alarm(0)
        tried += 1
    (folder / "tried.txt").write_text(str(tried))


def check(target: Target, path: Path) -> None:
    refusal = _refusal(target, path)
    said = str(refusal)
    assert type(refusal) in (ValueError, Damaged, NoneType), (
        f"a {type(refusal).__name__} is not meant for users: {said}"
    )
    assert "\n" not in said, f"more than a line: {said}"
    assert len(said) < 2_000, f"too long: {said[:2_000]}"
    assert refusal is None or str(path) in said, f"the file is not named: {said}"
    assert not any(word in said for word in ("Memory", "malloc")), f"it took too much: {said}"


def _refusal(target: Target, path: Path) -> ValueError | None:
    try:
        target.read(path)
    except ValueError as refusal:
        return refusal
    return None


_NUMBERS = (b"\0", b"\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\x7f\xff\xff\xff", b"\0\0\0\0")


def changed(content: bytes, chance: random.Random) -> bytes:
    """One to eight changes of a few bytes, or of a piece."""
    found = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4, 8))):
        place, length = chance.randrange(len(found) + 1), chance.choice((1, 2, 4, 16, 200))
        # Headers and footers are small, and decide most.
        place = chance.choice((place, place % 64, max(0, len(found) - place % 512)))
        match chance.randrange(6):
            case 0:
                found[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                number = chance.choice(_NUMBERS)
                found[place : place + len(number)] = number
            case 2:
                del found[place : place + length]
            case 3:
                found[place:place] = found[place : place + length]
            case 4:
                other = chance.randrange(len(found) + 1)
                found[place : place + length] = found[other : other + length]
            case 5 if chance.random() < 0.2:
                del found[place:]
    return bytes(found)


def _at(name: str) -> Callable[[Path, bytes], Path]:
    def write(folder: Path, content: bytes) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


def _pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (6, 3, 32, 32), np.uint8)


def _cifar_seeds() -> list[bytes]:
    import pickle

    from made_files import cifar_bytes

    batch = {"data": _pixels().reshape(6, -1), "labels": [0, 1, 2, 3, 4, 5]}
    return [cifar_bytes(_pixels(), [0, 1, 2, 3, 4, 5]), pickle.dumps(batch, protocol=4)]


def _cifar(path: Path) -> object:
    from widemargin.data.formats import File, cifar10

    return cifar10(File.read(path))


def _idx_seeds() -> list[bytes]:
    from made_files import idx_bytes

    return [idx_bytes(_pixels()[:, 0]), gzip.compress(idx_bytes(_pixels()[:, 0])), idx_bytes(np.arange(6, dtype="u1"))]


def _idx(path: Path) -> object:
    from widemargin.data.formats import File, idx

    return idx(File.read(path))


def _mat_seeds() -> list[bytes]:
    from scipy.io import savemat

    found = []
    for compressed in (False, False, True):
        file = io.BytesIO()
        arrays = {"X": _pixels().transpose(2, 3, 1, 0), "y": np.arange(1, 7)[:, None]}
        savemat(file, arrays, do_compression=compressed)
        found.append(file.getvalue())
    return found


def _mat(path: Path) -> object:
    from widemargin.data.formats import File, svhn

    return svhn(File.read(path))


def _npz_seeds() -> list[bytes]:
    found = []
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, x=_pixels(), y=np.array(["a", "b"] * 3))
        found.append(file.getvalue())
    return found


def _npy_seeds() -> list[bytes]:
    found = []
    for array in (np.arange(12.0).reshape(6, 2), _pixels()[:, :, :4, :4], np.zeros((6, 2), "f2")):
        file = io.BytesIO()
        np.save(file, array)
        found.append(file.getvalue())
    return found


def _in_npz(folder: Path, content: bytes) -> Path:
    """As one of the arrays: a changed archive mostly fails at its checksum."""
    labels = io.BytesIO()
    np.save(labels, np.array([0, 1] * 3))
    with zipfile.ZipFile(folder / "own.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", content)
        file.writestr("y.npy", labels.getvalue())
    return folder / "own.npz"


def _npz(path: Path) -> object:
    from widemargin.data.local_files import Npz

    return Npz(str(path)).read()


def _csv_seeds() -> list[bytes]:
    rows = "".join(f"{k},{k / 7:.3f},{'xyz'[k % 3]}\n" for k in range(40))
    quoted = "".join(f'"{k}",-{k}e-3,"{k % 2}"\r\n' for k in range(40))
    return [f"a,b,label\n{rows}".encode(), f"\ufeffa,b,label\r\n{quoted}".encode()]


def _table(path: Path) -> object:
    from widemargin.data.local import TableData
    from widemargin.data.local_files import Table

    with suppress(ValueError):
        # As it is: with texts and missing values.
        TableData(Table(str(path))).draw()
    return Table(str(path)).read()


def _parquet_seeds() -> list[bytes]:
    import pyarrow as arrow
    from pyarrow import parquet

    found = []
    columns = {"a": [1.5, 2.5, None, 4.0] * 10, "b": list(range(40)), "label": ["x", "y", None, "x"] * 10}
    for compression, dictionary in (("none", True), ("snappy", False), ("none", False), ("zstd", True)):
        file = io.BytesIO()
        parquet.write_table(arrow.table(columns), file, compression=compression, use_dictionary=dictionary)
        found.append(file.getvalue())
    return found


def _image_seeds() -> list[bytes]:
    from PIL import Image

    found = []
    for kind in ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM"):
        file = io.BytesIO()
        Image.fromarray(_pixels()[0].transpose(1, 2, 0)).save(file, kind)
        found.append(file.getvalue())
    return found


def _in_folder(folder: Path, content: bytes) -> Path:
    from PIL import Image

    (folder / "a").mkdir()
    (folder / "b").mkdir()
    (folder / "a" / "1").write_bytes(content)
    Image.new("RGB", (32, 32)).save(folder / "b" / "2.png")
    return folder


def _image_folder(path: Path) -> object:
    from widemargin.data.image_folder import ImageFolder

    return ImageFolder(str(path)).read()


def _description_seeds() -> list[bytes]:
    from widemargin import Adam, Epochs, Linf, Plan, udp
    from widemargin.data.images import ImageSet
    from widemargin.networks.named import LeNetSpec
    from widemargin.runs.run import Run
    from widemargin.runs.run_yaml import written
    from widemargin.runs.serialize import to_dict

    trial = Run(ImageSet("digits"), LeNetSpec(side=8), udp(Linf(0.1), 0.03, 4), Plan(Epochs(2), Adam(0.001), 32))
    return [written({"title": "udp on digits", "key": trial.key, "run": to_dict(trial), "data": {}}).encode()]


def _description(path: Path) -> object:
    from widemargin.runs.run_yaml import read_run

    return read_run(path)


TARGETS = (
    Target("CIFAR batch", _cifar_seeds, _at("data_batch_1"), _cifar),
    Target("IDX file", _idx_seeds, _at("images"), _idx),
    Target("SVHN .mat", _mat_seeds, _at("train_32x32.mat"), _mat),
    Target(".npz", _npz_seeds, _at("own.npz"), _npz),
    Target("array in an .npz", _npy_seeds, _in_npz, _npz),
    Target(".csv", _csv_seeds, _at("own.csv"), _table),
    Target(".parquet", _parquet_seeds, _at("own.parquet"), _table),
    Target("image in a folder", _image_seeds, _in_folder, _image_folder),
    Target("run.yaml", _description_seeds, _at("run.yaml"), _description),
)
