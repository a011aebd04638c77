"""What every attack does with the rows of a batch: which are still worth work, which are wrong."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeVar

from torch import Tensor

from widemargin.rng import RowRng
from widemargin.shapes import Encoded, Labels, LogProbs, Points
from widemargin.uncertainty.predictive import is_correct

State = TypeVar("State")

EFFICIENT_BATCH = 256
"""From about here on the cost of a call is small beside that of its rows."""
_FEW_FEATURES = 128


@dataclass(eq=False)
class Underway:
    """Of the points that an attack still moves, row for row."""

    row: Tensor
    inputs: Points
    labels: Labels
    targets: Labels
    delta: Encoded


def at_once(rows: int, tasks: int, most: int) -> int:
    """How many of the tasks that every row has are done side by side: as many as make `most` rows, or one."""
    return min(max(most // max(rows, 1), 1), tasks)


def turns_at_once(rows: int, turn: int, turns: int, most: int) -> int:
    """How many of the turns that are left, targets or restarts, are done side by side.

    The first turn, the likeliest target, is taken alone: points that it breaks need not try the others.
    """
    return 1 if turn == 0 else at_once(rows, turns - turn, most)


def among(state: State, which: Tensor) -> State:
    """These rows only (indices or a mask), of every tensor and of the draws that a dataclass holds."""
    cut: dict[str, Tensor | RowRng] = {}
    for field in fields(state):  # type: ignore[arg-type]
        value = getattr(state, field.name)
        if isinstance(value, Tensor):
            cut[field.name] = value[which]
        elif isinstance(value, RowRng):
            cut[field.name] = value.at(which)
    return replace(state, **cut)  # type: ignore[type-var]


def per_row(values: Tensor, like: Tensor) -> Tensor:
    """[B] to [B 1 1 ...]."""
    return values.view(-1, *[1] * (like.ndim - 1))


def wrong(logits: LogProbs, labels: Labels) -> Tensor:
    """An answer that is not a number is wrong."""
    return ~is_correct(logits, labels)


def has_few_features(inputs: Points) -> bool:
    """Whether these are rows of a table for which more work costs little."""
    return inputs.ndim == 2 and inputs.shape[1] <= _FEW_FEATURES
