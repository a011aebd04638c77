"""Which points of an audit come next, and which are done?  Pieces of its chunks."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import load_file
from torch import Tensor

from widemargin.conduct.audited import Array, Question

FIRST = 4
"""Points that are measured however short a budget is; from there on as many at once as there seems to be time for."""
_CHUNKS = "[0-9]*.safetensors"


@dataclass(frozen=True)
class Clock:
    budget: float | None
    begun: float = field(default_factory=time.monotonic)

    def left(self, share: float = 1.0) -> float:
        """In seconds, of a share of the budget that comes first."""
        return math.inf if self.budget is None else self.begun + share * self.budget - time.monotonic()


def pieces(chunks: Sequence[Tensor], place: Path, clock: Clock) -> Iterator[Tensor]:
    """Rows that are not saved: whole chunks, or with a budget a few, then as many at once as there seems to be time."""
    size = FIRST
    for chunk in chunks:
        saved = saved_rows(place)
        left = [row for row in chunk.tolist() if row not in saved]
        while left:
            begun, together = time.monotonic(), len(left) if clock.budget is None else size
            rows, left = left[:together], left[together:]
            yield torch.tensor(rows)
            each = (time.monotonic() - begun) / len(rows)
            size = int(min(2 * size, clock.left() / max(each, 1e-9)))
            if size < FIRST:
                return


def saved_rows(place: Path) -> set[int]:
    """Rows, in whatever chunks they were asked."""
    return {row for path in place.glob(_CHUNKS) for row in _rows(path)}


def _rows(path: Path) -> tuple[int, ...]:
    # Read every time: of a folder that was emptied nothing may be remembered.
    with safe_open(path, "numpy") as file:
        return tuple(map(int, file.get_tensor("row")))


def joined_pieces(question: Question, rows: int, place: Path) -> tuple[dict[str, Array], float]:
    """What is saved, in the order of the question, and how many seconds it took."""
    done = [load_file(path) for path in sorted(place.glob(_CHUNKS))]
    joined = {name: np.concatenate([chunk[name] for chunk in done]) for name in done[0]}
    seconds = float(joined.pop("seconds").sum())
    position = question.order(rows).argsort().numpy()
    _, order = np.unique(position[joined["row"]], return_index=True)
    return {name: values[order] for name, values in joined.items()}, seconds
