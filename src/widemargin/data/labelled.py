"""What is a set of labelled examples, whatever file it came from?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Shaped
from torch import Tensor

from widemargin.data.checks import UNLABELLED, check_features, check_known_labels, check_labels, check_points
from widemargin.shapes import Labels, Points

ClassName = str | int | float
Stored = Shaped[Tensor, "B *F"]


@dataclass(frozen=True)
class Origin:
    """Where examples were read and what exactly was there, for a run to record.

    `official` says whether every file has its official checksum; None where nobody publishes one.
    """

    place: str
    digest: str
    official: bool | None = None


@dataclass(frozen=True, eq=False)
class Labelled:
    """Examples and their classes; class k is called `names[k]` where the examples come from.

    Pixels stay the bytes they are in the file and become numbers in [0, 1] a batch at a time: as float32 CIFAR-10 would
    take 614 MB instead of 154.  `white` is the stored value that means 1.
    """

    stored: Stored
    labels: Labels
    names: tuple[ClassName, ...]
    origin: Origin
    white: int = 1
    partly: bool = False
    """Some labels may be UNLABELLED: such a set is for training alone."""

    def __post_init__(self) -> None:
        if len(self.stored) == 0:
            raise ValueError("a set or a part of one must have at least one example, got none: use more examples")
        if self.stored.is_floating_point():
            check_points(self.stored)
        check_features(self.stored)
        check = check_known_labels if self.partly else check_labels
        check(self.labels, len(self.stored), self.classes)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        return len(self.names)

    @property
    def known(self) -> Tensor:
        """The numbers of the rows that have a label."""
        return (self.labels != UNLABELLED).nonzero()[:, 0]

    def labelled(self) -> Labelled:
        """The rows that have a label, which can be measured on too."""
        return replace(self.take(self.known), partly=False) if self.partly else self

    @property
    def points(self) -> Points:
        """Every example as float32: all of them at once, so for images mind the memory."""
        return self._scaled(self.stored)

    def batch(self, rows: Tensor) -> tuple[Points, Labels]:
        """The examples of these row numbers: float32 in [0, 1] for images, and int64 classes."""
        return self._scaled(self.stored[rows]), self.labels[rows]

    def take(self, rows: Tensor) -> Labelled:
        """A smaller set with these rows, in this order."""
        return replace(self, stored=self.stored[rows], labels=self.labels[rows])

    def to(self, device: torch.device | str) -> Labelled:
        return replace(self, stored=self.stored.to(device), labels=self.labels.to(device))

    def _scaled(self, stored: Tensor) -> Tensor:
        return stored.float() if self.white == 1 else stored.float().div_(self.white)


@dataclass(frozen=True, eq=False)
class Parts:
    """Train on the first, which may lack labels, choose on the second, report on the third."""

    train: Labelled
    validation: Labelled
    test: Labelled
