"""Chunks of an audit: which points come next, and what is saved of those that are done, a file for each chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from widemargin.auditing.clock import Clock
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.result import Array
from widemargin.files import Damaged, read_json, read_tensors, write_tensors

FIRST = 4
"""Points that a budget begins with if there is time; from there on as many at once as there seems to be time for."""
_CHUNKS = "[0-9]*.safetensors"
_ANEW = "delete it, and the same command measures what was in it again; everything else is kept"


@dataclass(frozen=True, eq=False)
class Chunk:
    """What is known of some points, and which parts of the audit failed for them: by name, in a sentence each."""

    points: Mapping[str, Array]
    failed: Mapping[str, str]


def pieces(chunks: Sequence[Tensor], place: Path, clock: Clock, each: float = 0.0) -> Iterator[Tensor]:
    """Rows that are not saved: whole chunks, or with a budget a few, then as many at once as there seems to be time.

    `each` is how many seconds a point may take: if there is no time for a few, the first comes alone.
    """
    size = FIRST if FIRST * each <= clock.left() else 1
    for chunk in chunks:
        saved = saved_rows(place)
        left = [row for row in chunk.tolist() if row not in saved]
        while left:
            begun, together = clock.now(), len(left) if clock.budget is None else size
            rows, left = left[:together], left[together:]
            yield torch.tensor(rows)
            took = (clock.now() - begun) / len(rows)
            size = int(min(2 * size, clock.left() / max(took, 1e-9)))
            if size < 1:
                return


def write_chunk(place: Path, piece: Chunk) -> None:
    """The folder is named by the key, and so is what it holds."""
    tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in piece.points.items()}
    rows = piece.points["row"].tolist()
    write_tensors(_path(place, rows), tensors, {"audit": place.name, "rows": rows, "failed": dict(piece.failed)})


def check_saved(place: Path, config: AuditConfig, rows: int) -> None:
    """What is saved must be as it was written, or hours later it would be in the way: else one sentence."""
    wanted = set(config.sample(rows).tolist())
    for path in sorted(place.glob("*")):
        try:
            if path.match(_CHUNKS):
                _read(path, wanted)
            elif path.suffix == ".safetensors":
                read_tensors(path)
            elif path.suffix == ".json":
                read_json(path)
        except Damaged as problem:
            raise ValueError(f"{problem}: {_ANEW}") from None


def saved_rows(place: Path) -> set[int]:
    """Rows, in whatever chunks they were measured."""
    # Read every time: of a folder that was emptied nothing may be remembered.
    return {row for path in place.glob(_CHUNKS) for row in _rows(path)}


def _rows(path: Path) -> list[int]:
    with safe_open(path, "pt") as file:
        rows: list[int] = file.get_tensor("row").tolist()
        return rows


def joined_chunks(config: AuditConfig, rows: int, place: Path) -> Chunk | None:
    """All that is saved, in the order of the audit; None if that is nothing."""
    order = config.order(rows)
    done = [_read(path, set(order.tolist())) for path in sorted(place.glob(_CHUNKS))]
    if not done:
        return None
    # A file of an earlier version may lack what is recorded now.
    names = [name for name in done[0].points if all(name in piece.points for piece in done)]
    joined = {name: np.concatenate([piece.points[name] for piece in done]) for name in names}
    _, at = np.unique(order.argsort().numpy()[joined["row"]], return_index=True)
    failed = {name: sentence for piece in reversed(done) for name, sentence in piece.failed.items()}
    return Chunk({name: values[at] for name, values in joined.items()}, failed)


def _read(path: Path, wanted: set[int]) -> Chunk:
    tensors, note = read_tensors(path)
    rows = note.get("rows") or [-1]
    if note.get("audit") != path.parent.name or path != _path(path.parent, rows) or not wanted.issuperset(rows):
        raise Damaged(f"{path} holds points of another audit")
    if tensors["row"].tolist() != rows or any(len(values) != len(rows) for values in tensors.values()):
        raise Damaged(f"{path} is damaged (it does not hold what it names)")
    return Chunk({name: values.numpy() for name, values in tensors.items()}, note["failed"])


def _path(place: Path, rows: Sequence[int]) -> Path:
    return place / f"{rows[0]:06}.safetensors"
