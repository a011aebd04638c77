"""What can be trained on and measured?  Anything with labels that hands out batches by row number."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from widemargin.shapes import Labels, Points


class Examples(Protocol):
    """A Cloud, or images and tables."""

    @property
    def labels(self) -> Labels: ...
    def __len__(self) -> int: ...
    def batch(self, rows: Tensor) -> tuple[Points, Labels]: ...
