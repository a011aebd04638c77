"""The user's own data in its parts: for training, validation and test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemargin.data.checks import UNLABELLED, ClassName
from widemargin.data.columns import Columns
from widemargin.data.dataset import Dataset, Splits
from widemargin.data.frames import Frame
from widemargin.data.local_files import LocalFile, TableFile, origin_of
from widemargin.data.schema import Schema
from widemargin.data.splits import random_splits, split_rows
from widemargin.parts import part

_AS_THEY_ARE = Columns()


@part
@dataclass(frozen=True)
class LocalData:
    """The user's own examples in stratified random splits.

    `validation` and `test` are fractions of the labelled rows; unlabelled rows are for training.
    This names a path, not its content: `Dataset.digest` distinguishes two versions of a file.
    """

    file: LocalFile
    validation: float = 0.1
    test: float = 0.2
    seed: int = 0

    def undivided(self) -> Dataset:
        """All rows, in the order of the file."""
        return self.file.read()

    def draw(self) -> Splits:
        return random_splits(self.file.read(), self.validation, self.test, self.seed)


@part
@dataclass(frozen=True)
class SplitData:
    """The user's own examples in splits of their own: validation and test are files like the first, or fractions of it
    as in LocalData.  Classes are those of the training file."""

    train: LocalFile
    validation: LocalFile | float = 0.1
    test: LocalFile | float = 0.2
    seed: int = 0

    def undivided(self) -> Dataset:
        """All rows of the training file, in its order."""
        return self.train.read()

    def draw(self) -> Splits:
        whole = self.train.read()
        validation, test = (
            None if isinstance(file, int | float) else file.read(whole.names) for file in (self.validation, self.test)
        )
        for other in (validation, test):
            _check_alike(whole, other)
        rows = split_rows(whole.labels, _fraction(self.validation), _fraction(self.test), self.seed)
        train, held, last = (whole.take(some) if len(some) else None for some in rows)
        test_rows = None if test is None else test.known
        held, last = _labelled_part(validation or held), _labelled_part(test or last)
        return Splits(_present(train), held, last, test_rows=test_rows)


@part
@dataclass(frozen=True)
class TableData:
    """The user's own table with columns as they are; the schema follows from the labelled training rows alone."""

    train: TableFile
    columns: Columns = _AS_THEY_ARE
    validation: TableFile | float = 0.1
    test: TableFile | float = 0.2
    seed: int = 0

    def undivided(self) -> Dataset:
        """All rows of the training file, in its order, as they are for training."""
        frame, labels, _, schema = self._fitted()
        return _encoded(schema, frame, None, labels)

    def _fitted(self) -> tuple[Frame, NDArray[np.int64], tuple[Tensor, Tensor, Tensor], Schema]:
        """The training file, its labels, the rows of its parts, and the schema."""
        label = self.train.label
        frame = self.train.frame(self.columns.selection(label))
        labels, classes = self.train.numbered(frame.labels, frame.path)
        rows = split_rows(torch.from_numpy(labels), _fraction(self.validation), _fraction(self.test), self.seed)
        # Those with a label: what a method leaves out must decide nothing.
        known = rows[0].numpy()[labels[rows[0].numpy()] != UNLABELLED]
        return frame, labels, rows, Schema.fit(frame, known, self.columns, label, classes)

    def draw(self) -> Splits:
        frame, labels, rows, schema = self._fitted()
        notes = schema.notes()
        parts = []
        for file, of_part in zip((None, self.validation, self.test), rows, strict=True):
            if file is None or isinstance(file, int | float):
                parts.append(_encoded(schema, frame, of_part, labels))
                continue
            other = file.frame(schema.selection)
            notes += schema.notes_on(other)
            parts.append(_encoded(schema, other, None, schema.labels(other)))
        train, validation, test = parts
        test_rows = test.known if _fraction(self.test) is None else None
        return Splits(train, _labelled_part(validation), _labelled_part(test), tuple(notes), test_rows)


@dataclass(frozen=True)
class SchemaData:
    """Another table for a run that was trained on one, read by the schema of that run; for tests alone."""

    file: TableFile
    schema: Schema
    test: float | None = 0.2
    """The fraction that is used, split off as of a file that is trained on.  So no row of a copy of that was seen in
    training, unless the run had files of its own for validation or test.  None for all rows."""

    def draw(self) -> Splits:
        frame = self.file.frame(self.schema.selection)
        labels = self.schema.labels(frame)
        rows = None if self.test is None else split_rows(torch.from_numpy(labels), 0.1, self.test, seed=0)[2]
        chosen = _encoded(self.schema, frame, rows, labels)
        tests, notes = _labelled_part(chosen), tuple(self.schema.notes_on(frame))
        return Splits(tests, tests, tests, notes, chosen.known if rows is None else None)


@dataclass(frozen=True)
class WholeFile:
    """All of a file for tests; its classes are those that are known, if any are."""

    file: LocalFile
    classes: tuple[ClassName, ...] = ()

    def draw(self) -> Splits:
        whole = self.file.read(self.classes)
        tests = _labelled_part(whole)
        return Splits(tests, tests, tests, test_rows=whole.known)


def _encoded(schema: Schema, frame: Frame, rows: Tensor | None, labels: NDArray[np.int64]) -> Dataset:
    at = np.arange(len(frame)) if rows is None else rows.numpy()
    origin = origin_of(frame.path)
    return Dataset(schema.encoded(frame, at), torch.from_numpy(labels[at]), schema.classes, origin, schema=schema)


def _fraction(part: LocalFile | TableFile | float) -> float | None:
    """None of a file of its own."""
    return float(part) if isinstance(part, int | float) else None


def _present(part: Dataset | None) -> Dataset:
    assert part is not None
    return part


def _labelled_part(part: Dataset | None) -> Dataset:
    """Nothing can be measured on rows without a label."""
    part = _present(part)
    if len(part.known) == 0:
        raise ValueError(f"{part.origin.place} must have rows with a label, got none: validation and test need them")
    return part.labelled()


def _check_alike(train: Dataset, other: Dataset | None) -> None:
    if other is None:
        return
    if other.stored.shape[1:] != train.stored.shape[1:]:
        raise ValueError(
            f"examples of all files must have one shape, got {list(train.stored.shape[1:])} in {train.origin.place} "
            f"and {list(other.stored.shape[1:])} in {other.origin.place}: bring them to one, of images with --size"
        )
    if (other.white == 1) == (train.white == 1):
        return
    # Bytes are images and become 0 to 1, which other numbers must then be.
    numbers, pixels = (other, train) if other.white == 1 else (train, other)
    low, high = float(numbers.stored.min()), float(numbers.stored.max())
    if not 0 <= low <= high <= 1:
        raise ValueError(
            f"images of all files must have one scale, got bytes, which become 0 to 1, in {pixels.origin.place} and "
            f"numbers from {low:g} to {high:g} in {numbers.origin.place}: store both as bytes, or both as numbers"
        )
