"""Atomic writes and checksums of JSON, YAML and .safetensors files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

Note = dict[str, Any]
"""The metadata of a file of tensors: numbers, text, lists and mappings."""
_NOTE, _CHECKSUM = "widemargin", "checksum"
_DIGEST = re.compile("[0-9a-f]{32}")


class Absent(ValueError):
    """What was to be read is not there (yet)."""


class Damaged(ValueError):
    """A file has changed since it was written.  The caller adds what to do."""


def write_whole(path: Path, content: bytes) -> None:
    """Written to a temporary file, synced, then renamed: a crash leaves the old file or the new one."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            # The new name must reach the disk too.
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as problem:
        raise unwritten(path, problem) from None
    finally:
        if partial.exists():
            with contextlib.suppress(OSError):
                partial.unlink()


def unwritten(path: Path, problem: OSError) -> ValueError:
    return ValueError(
        f"{path} cannot be written ({problem.strerror or problem}): make room or choose another folder; what was there "
        "is kept"
    )


def remove_partial(folder: Path) -> None:
    """Delete unfinished files of killed processes; no other process may be writing here."""
    for partial in folder.glob(".*.partial"):
        partial.unlink(missing_ok=True)


def write_json(path: Path, content: Mapping[str, Any], allow_nan: bool = False) -> None:
    """With a checksum as its last entry."""
    sealed = {**content, _CHECKSUM: _digest(_canonical(content))}
    write_whole(path, (json.dumps(sealed, indent=1, allow_nan=allow_nan) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Without the checksum.  A file of an older version, without one, is read unchecked."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as problem:
        raise Damaged(f"{path} is damaged ({_line(problem)})") from None
    if not isinstance(content, dict):
        raise Damaged(f"{path} is damaged (it holds a {type(content).__name__})")
    # The key "checksum" itself may be damaged.
    last = next(reversed(content), "")
    if _CHECKSUM in content or _DIGEST.fullmatch(str(content.get(last))):
        checksum = content.pop(_CHECKSUM, None)
        if checksum != _digest(_canonical(content)):
            raise Damaged(f"{path} is damaged (its checksum differs)")
    return content


def sealed_text(text: str) -> str:
    """YAML with its checksum as the first line, which a truncated file still has."""
    return f"{_CHECKSUM}: {_digest(text.encode())}\n{text}"


def unsealed_text(text: str, path: Path) -> str:
    """Without the first line, if the checksum matches.  A text of an older version, without one, is read unchecked."""
    first, _, body = text.partition("\n")
    if not first.startswith(f"{_CHECKSUM}:") and not _DIGEST.search(first):
        return text
    if first != f"{_CHECKSUM}: {_digest(body.encode())}":
        raise Damaged(f"{path} is damaged or was edited (its checksum differs)")
    return body


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: Mapping[str, Any]) -> None:
    """A .safetensors file whose checksum covers names, kinds, shapes, values and the note."""
    # Copies: a file holds no two tensors of one memory, and only plain layouts.
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    write_whole(path, save(plain, {_NOTE: json.dumps({**note, _CHECKSUM: _digest_of_tensors(plain, note)})}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Note]:
    """What `write_tensors` wrote."""
    if not path.is_file():
        raise Damaged(f"{path} is missing")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            note = dict(json.loads((file.metadata() or {})[_NOTE]))
        checksum = note.pop(_CHECKSUM)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError, RecursionError) as problem:
        raise Damaged(f"{path} is damaged or not a widemargin file ({_line(problem)})") from None
    # In older versions it was a number that covered the tensors only.
    expected = _crc_of_tensors(tensors) if isinstance(checksum, int) else _digest_of_tensors(tensors, note)
    if checksum != expected:
        raise Damaged(f"{path} is damaged (its checksum differs)")
    return tensors, note


def read_note(path: Path) -> Note:
    """The note of a file of tensors, which are not read and not checked."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(json.loads((file.metadata() or {})[_NOTE]))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as problem:
        raise Damaged(f"{path} is missing, damaged or not a widemargin file ({_line(problem)})") from None


def _canonical(content: Mapping[str, Any]) -> bytes:
    # As JSON reads it: keys become strings, tuples lists.
    return json.dumps(json.loads(json.dumps(content)), sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _digest_of_tensors(tensors: Mapping[str, Tensor], note: Mapping[str, Any]) -> str:
    total = hashlib.sha256(_canonical(note))
    for name in sorted(tensors):
        total.update(f"{name} {tensors[name].dtype} {list(tensors[name].shape)}".encode())
        total.update(_bytes(tensors[name]))
    return total.hexdigest()[:32]


def _crc_of_tensors(tensors: Mapping[str, Tensor]) -> int:
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(_bytes(tensors[name]), zlib.crc32(name.encode(), total))
    return total


def _bytes(tensor: Tensor) -> memoryview:
    # An empty tensor may have strides of 0, which cannot be viewed as bytes.
    return tensor.flatten().view(torch.uint8).numpy().data if tensor.numel() else memoryview(b"")


def _line(problem: BaseException) -> str:
    return " ".join(str(problem).split()) or type(problem).__name__
