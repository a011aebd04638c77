"""What can be trained on and measured?  Anything with labels that hands out batches by row number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from widemargin.shapes import Labels, Points


class Examples(Protocol):
    """A Cloud, or images and tables."""

    @property
    def labels(self) -> Labels: ...
    def __len__(self) -> int: ...
    def batch(self, rows: Tensor) -> tuple[Points, Labels]: ...


@dataclass(frozen=True, eq=False)
class Chosen:
    """Some rows of a set, in this order, which keep the numbers that they have there."""

    of: Examples
    rows: Tensor

    @property
    def labels(self) -> Labels:
        return self.of.labels[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, rows: Tensor) -> tuple[Points, Labels]:
        return self.of.batch(self.rows[rows])


def row_numbers(examples: Examples, rows: Tensor) -> Tensor:
    """In the whole set.  What is drawn for an example follows from that, so that it is the same in every selection."""
    return row_numbers(examples.of, examples.rows[rows]) if isinstance(examples, Chosen) else rows
