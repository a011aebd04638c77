"""Datasets: inputs and their labels, indexable; a subset of one; splits for training, validation and test."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from widemargin.data.checks import (
    UNLABELLED,
    ClassName,
    check_features,
    check_known_labels,
    check_label_type,
    check_points,
)
from widemargin.data.schema import Schema
from widemargin.shapes import Labels, PerSample, Points

_ROWS_AT_ONCE = 2_000
"""Of the matrix of distances that is in memory."""


@dataclass(frozen=True)
class Origin:
    """Where a dataset was read, and a digest of its files, for a run to record.

    `official` says whether every file has its official checksum; None where none is published.
    """

    place: str
    digest: str
    official: bool | None = None


IN_MEMORY = Origin("memory", "")
"""Of tensors, which were not read from a file."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs [rows, features...] and labels [rows]; `dataset[rows]` is a batch of both.

    Pixels are stored as bytes and become floats in [0, 1] one batch at a time: as float32 CIFAR-10
    would take 614 MB instead of 154.  `white` is the stored value that means 1.

    A label of -1 (UNLABELLED) is an unknown class: `vat` and `udp_consistency` train on such rows; nothing can be
    measured on them.
    """

    # Plain tensors here, so that wrong ones get the errors of the checks below.
    stored: Tensor
    labels: Tensor
    names: tuple[ClassName, ...] = ()
    """The name of class k in the source; 0, 1, ... by default."""
    origin: Origin = IN_MEMORY
    white: int = 1
    schema: Schema | None = None
    """That of a table, of which these are the encoded rows."""

    def __post_init__(self) -> None:
        if isinstance(self.stored, Tensor) and len(self.stored) == 0 and self.origin is not IN_MEMORY:
            raise ValueError("a dataset or a split must have at least one example, got none: use more examples")
        if self.origin is IN_MEMORY or self.stored.is_floating_point():
            check_points(self.stored)
        check_features(self.stored)
        check_label_type(self.labels)
        if not self.names:
            object.__setattr__(self, "names", tuple(range(int(self.labels.max()) + 1 if self.labels.numel() else 0)))
        if self.labels.numel() and not self.names:
            raise ValueError("at least one row must have a label, got none: nothing would say what the classes are")
        check_known_labels(self.labels, len(self.stored), self.classes)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor | slice | int) -> tuple[Points, Labels]:
        """Float inputs, in [0, 1] for images, and int64 classes."""
        return self._scaled(self.stored[rows]), self.labels[rows]

    @property
    def classes(self) -> int:
        return len(self.names)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, if they have any."""
        return () if self.schema is None else self.schema.features

    @property
    def points(self) -> Points:
        """All inputs as floats at once; large for images."""
        return self._scaled(self.stored)

    @cached_property
    def has_unlabelled(self) -> bool:
        """Whether some rows have no label."""
        return bool((self.labels == UNLABELLED).any())

    @property
    def known(self) -> Tensor:
        """The numbers of the rows that have a label."""
        return (self.labels != UNLABELLED).nonzero()[:, 0]

    @cached_property
    def digest(self) -> str:
        """Of the inputs and labels, or of the files they were read from."""
        return digest(self.stored, self.labels) if self.origin is IN_MEMORY else self.origin.digest

    def labelled(self) -> Dataset:
        """The rows that have a label."""
        return self.take(self.known) if self.has_unlabelled else self

    def hide_labels(self, known: Tensor) -> Dataset:
        """All rows, but only the rows `known` keep their labels: to simulate few labels."""
        hidden = torch.full_like(self.labels, UNLABELLED)
        hidden[known] = self.labels[known]
        return replace(self, labels=hidden)

    def take(self, rows: Tensor) -> Dataset:
        """A smaller dataset with these rows, in this order."""
        return replace(self, stored=self.stored[rows], labels=self.labels[rows])

    def repeat(self, times: int) -> Dataset:
        """One copy after the other: a block for each of several replicas."""
        return replace(self, stored=torch.cat([self.stored] * times), labels=torch.cat([self.labels] * times))

    def to(self, device: torch.device | str) -> Dataset:
        return replace(self, stored=self.stored.to(device), labels=self.labels.to(device))

    def best_margins(self, p: float = 2.0) -> PerSample:
        """Half the distance to the nearest point of another class: no boundary can give all points more.

        The boundary of the nearest-neighbour rule gives every point at least this much, so it is attained.
        """
        points = self.points
        flat, nearest = points.double().flatten(1), []
        for rows in torch.arange(len(flat), device=flat.device).split(_ROWS_AT_ONCE):
            distances = torch.cdist(flat[rows], flat, p=p)
            distances[self.labels[rows, None] == self.labels[None]] = torch.inf
            nearest.append(distances.amin(1))
        return (torch.cat(nearest) / 2).to(points)

    def _scaled(self, stored: Tensor) -> Tensor:
        if self.white != 1:
            return stored.float().div_(self.white)
        # Files become single precision; tensors in memory keep theirs.
        return stored if self.origin is IN_MEMORY else stored.float()


@dataclass(frozen=True, eq=False)
class Subset:
    """Some rows of a dataset, in this order, that remember their row numbers there."""

    of: Examples
    rows: Tensor
    moved: Points | None = None
    """Other inputs in their place, as many; a row may then be there several times."""

    @property
    def labels(self) -> Labels:
        return self.of.labels[self.rows]

    @property
    def has_unlabelled(self) -> bool:
        return bool((self.labels == UNLABELLED).any())

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Tensor | slice | int) -> tuple[Points, Labels]:
        if self.moved is not None:
            return self.moved[rows], self.labels[rows]
        return self.of[self.rows[rows]]


Examples = Dataset | Subset
"""What can be trained on and measured."""


@dataclass(frozen=True, eq=False)
class Splits:
    """Training split, which may have unlabelled rows; validation split, for selection; test split, for the results."""

    train: Dataset
    validation: Dataset
    test: Dataset
    notes: tuple[str, ...] = ()
    """Sentences on the files that are worth a warning."""
    test_rows: Tensor | None = None
    """Of a test split that is a file of its own: the row there of each example; rows without a label are left out."""


def row_numbers(examples: Examples, rows: Tensor) -> Tensor:
    """In the whole dataset.  Random numbers of an example depend on it, so they are the same in every subset."""
    return row_numbers(examples.of, examples.rows[rows]) if isinstance(examples, Subset) else rows


def digest(*tensors: Tensor) -> str:
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(f"{list(tensor.shape)} {tensor.dtype}".encode())
        content.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return content.hexdigest()[:16]
