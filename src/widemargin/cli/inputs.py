"""Model, dataset and folder for the results: what `audit` and `calibrate` share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from widemargin.cli.describe import data_named
from widemargin.cli.local_data import existing, file_of, table_file
from widemargin.cli.verbs.audit import Audit
from widemargin.cli.verbs.calibrate import Calibrate
from widemargin.cli.verbs.train import Train
from widemargin.data.dataset import Dataset, Splits
from widemargin.data.images import ImageSet
from widemargin.data.limits import listed
from widemargin.data.local import LocalData, SchemaData, SplitData, TableData, WholeFile
from widemargin.data.local_files import Table
from widemargin.data.numerals import Decimal
from widemargin.data.schema import Schema
from widemargin.data.tables import SUFFIXES
from widemargin.io.load import Model
from widemargin.io.zoo import PREFIX
from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import data_note
from widemargin.runs.run import DataSpec
from widemargin.runs.run_yaml import read_description
from widemargin.shapes import MemberLogits
from widemargin.uncertainty.network import Network, in_eval_mode

_LABEL = Train.label
"""The column of labels where none is named."""
_TRIED = 16
"""Points on which a network is tried before anything is written."""


def place_of(model: str) -> str:
    """A run may be named as it is in runs/."""
    named = Path("runs") / model
    return str(named) if not Path(model).exists() and named.is_dir() else model


def folder_for(out: Path | None, place: str, kind: str, weights: Path | None = None) -> Path:
    """Where results go: as said, into the run's own folder, or for other models into one that their path names.

    Files in different folders may have one name, so that alone would not do.
    """
    if out is not None or Path(place).is_dir():
        return out or Path(place)
    name = _from_here(place).replace(".py:", "-").replace(PREFIX, "zoo-")
    return Path(kind) / (name if weights is None else f"{name}-{_from_here(weights)}")


def _from_here(place: str | Path) -> str:
    """A path below this folder, or else below the root: one place has one, however it is written."""
    whole, here = Path(os.path.abspath(Path(place).expanduser())), Path.cwd()
    return str(whole.relative_to(here if whole.is_relative_to(here) else whole.anchor))


def foreign(data: DataSpec, drawn: Splits, model: Model, place: str) -> bool:
    """Whether it is another dataset than that of the run, whose results must not be replaced."""
    if model.run is None or data == model.run.data:
        return False
    if not isinstance(data, type(model.run.data)):
        return True
    if isinstance(data, ImageSet) and data.name != getattr(model.run.data, "name", None):
        return True
    try:
        trained_on = model.run.data.draw()
    except (ValueError, OSError):
        # It cannot be compared any more.
        return True
    return not (
        isinstance(trained_on, Splits)
        and _seen(place) in (None, data_note(trained_on))
        and torch.equal(trained_on.test.stored, drawn.test.stored)
        and torch.equal(trained_on.test.labels, drawn.test.labels)
    )


def made(out: Path) -> Path:
    """The folder, before long work would be lost for want of it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ValueError(f"--out must be a folder or be free for one, got {out} ({problem.strerror})") from None
    return out


def answers(network: Network, tests: Dataset, called: str) -> MemberLogits:
    """Its answers to a few points; refused if these, or their classes, are not what the network was made for."""
    inputs, _ = tests[torch.arange(min(_TRIED, len(tests)))]
    try:
        with torch.no_grad(), in_eval_mode(network):
            logits = network.logits(network.encode(inputs))
    except Exception as problem:
        # Networks of others raise what they like, in as many lines as they like.
        # One of ours is a sentence already.
        kind = "" if isinstance(problem, ValueError) else f"{type(problem).__name__}: "
        reason = f"{kind}{problem}".splitlines()[0]
        raise ValueError(
            f"the network must take points of shape {list(inputs.shape[1:])}, as those of {called} are, but it raised "
            f"an error ({reason}): give the data that it was trained for"
        ) from problem
    if tests.classes > logits.shape[-1]:
        raise ValueError(
            f"the network must tell all {tests.classes} classes of {called} apart, got {logits.shape[-1]} logits: give "
            "the data that it was trained for"
        )
    if tests.classes < logits.shape[-1] and tests.names != tuple(range(tests.classes)):
        # Numbered by this file alone, they would be taken for the first ones.
        raise ValueError(
            f"the network has {logits.shape[-1]} logits, and which of them are the {tests.classes} classes of {called} "
            f"({listed(tests.names)}) is not known: call classes by the numbers of their logits, from 0"
        )
    return logits


def data_asked(words: Audit | Calibrate, model: Model, flag: str = "--data") -> DataSpec:
    """As named, or a run's own.  For a model of a table, the columns of another one are read as its own were."""
    if words.data is not None and words.test is not None:
        raise ValueError("--data and --test name the examples in two ways: give one of them")
    if words.test is not None:
        path = existing("--test", words.test)
        if model.schema is not None:
            return _by_schema(path, words, model, model.schema, test=None)
        return WholeFile(file_of(path, words.label or _LABEL, words.decimal, words.size), model.classes)
    may_be_table = (*SUFFIXES, ".npz") if model.schema is not None else SUFFIXES
    word = words.data
    if word is not None and Path(word).suffix in may_be_table and Path(word).expanduser().is_file():
        return _table_asked(existing(flag, word), words, model)
    if word is not None:
        return data_named(Train(word, "", label=words.label or _LABEL, decimal=words.decimal, size=words.size), flag)
    if model.run is None:
        raise ValueError("a model that is not a widemargin run needs --data")
    return model.run.data


def _table_asked(path: Path, words: Audit | Calibrate, model: Model) -> DataSpec:
    if model.schema is None:
        # A network of others takes numbers as they are.
        return LocalData(Table(str(path), words.label or _LABEL, words.decimal))
    trained_on = None if model.run is None else model.run.data
    as_trained = words.label in (None, model.schema.label) and words.decimal in (None, _decimal(model))
    if isinstance(trained_on, TableData) and trained_on.train.path == str(path) and as_trained:
        return trained_on
    return _by_schema(path, words, model, model.schema)


def _by_schema(
    path: Path, words: Audit | Calibrate, model: Model, schema: Schema, test: float | None = SchemaData.test
) -> SchemaData:
    schema = schema.with_label(words.label)
    return SchemaData(table_file(path, schema.label, words.decimal or _decimal(model)), schema, test)


def _decimal(model: Model) -> Decimal | None:
    """What was said of the table in training."""
    data = None if model.run is None else model.run.data
    return data.train.decimal if isinstance(data, TableData) and isinstance(data.train, Table) else None


def notes_on(data: DataSpec, drawn: Splits, model: Model) -> tuple[str, ...]:
    """Of the model, and of another file than that of the run: what is worth a warning of that, training has said."""
    is_own = model.run is not None and data == model.run.data
    return model.notes if is_own else (*model.notes, *drawn.notes)


def check_as_trained(data: DataSpec, drawn: Splits, model: Model, place: str) -> None:
    """A description names a place, not what is there: a run's own data must be what the run has seen."""
    if model.run is not None and data == model.run.data and _seen(place) not in (None, data_note(drawn)):
        raise ValueError(
            f"the data must be as it was when the run in {place} began, but it has changed: put it back, or name a "
            "copy of what is there now with --data, whose results are kept apart"
        )


def _seen(place: str) -> dict[str, Any] | None:
    """What the data of a run was, if it is a run's folder."""
    path = RunFolder(Path(place)).description
    return read_description(path).get("data") if path.exists() else None


def with_tests(data: DataSpec) -> tuple[str, Splits]:
    """What it is called, and its parts."""
    drawn = data.draw()
    if not isinstance(drawn, Splits):
        raise ValueError("there must be a test split, got points of a toy set: give --data")
    if isinstance(data, LocalData | SplitData | TableData | SchemaData | WholeFile):
        return Path(drawn.test.origin.place).name, drawn
    return data.name if isinstance(data, ImageSet) else type(data).__name__, drawn
