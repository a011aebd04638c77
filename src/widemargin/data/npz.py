"""Reader of .npz files: plain arrays whose headers are checked before anything is allocated."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from widemargin.data.limits import check_unpacked, listed, reason, size_of

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Numpy writes no others, and some allocate gigabytes because of a header."""


def npz_names(path: Path) -> set[str]:
    """Of the arrays in it."""
    return set(_members(path))


def npz_arrays(path: Path, names: tuple[str, str]) -> list[NDArray[Any]]:
    packed, members = size_of(path), _members(path)
    if any(name not in members for name in names):
        raise ValueError(
            f"{path} must hold the arrays {names[0]!r} and {names[1]!r}, got {listed(members) or 'none'}: store them "
            "under these names"
        )
    check_unpacked(path, sum(members[name].file_size for name in names), packed)
    try:
        with zipfile.ZipFile(path) as file:
            return [_array(file, members[name]) for name in names]
    except Exception as problem:
        raise _no_npz(path, problem) from None


def _members(path: Path) -> dict[str, zipfile.ZipInfo]:
    size_of(path)
    try:
        with zipfile.ZipFile(path) as file:
            return {member.filename.removesuffix(".npy"): member for member in file.infolist()}
    except Exception as problem:
        # A library may raise anything on a malformed file.
        raise _no_npz(path, problem) from None


def _array(file: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    if member.compress_type not in _METHODS:
        raise ValueError("a compression that numpy does not write")
    with file.open(member) as opened:
        version = npy.read_magic(opened)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, kind = read(opened)
        if kind.hasobject:
            raise ValueError("Python objects, which cannot be read without running code (allow_pickle)")
        if math.prod(shape) * kind.itemsize != member.file_size - opened.tell() or kind.itemsize == 0:
            raise ValueError(f"a header of shape {list(shape)[:9]} and {str(kind)[:40]} for other contents")
    with file.open(member) as opened:
        return np.asarray(npy.read_array(opened, allow_pickle=False))


def _no_npz(path: Path, problem: Exception) -> ValueError:
    return ValueError(f"{path} must be an .npz file of plain arrays, got {reason(problem)}: write it with numpy.savez")
