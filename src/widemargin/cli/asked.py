"""Which model is asked, about which examples, and where does the answer go?  What `audit` and `calibrate` share."""

from __future__ import annotations

from pathlib import Path

from widemargin.cli.choice import Choice, data_named
from widemargin.conduct.model import Model
from widemargin.data.images import ImageSet
from widemargin.data.labelled import Parts
from widemargin.data.own import OwnData
from widemargin.run import DataSet


def place_of(model: str) -> str:
    """A run may be named as it is in runs/."""
    named = Path("runs") / model
    return str(named) if not Path(model).exists() and named.is_dir() else model


def folder_for(out: Path | None, place: str, kind: str) -> Path:
    """Where results go: as said, into the run's own folder, or for other models into one of their name."""
    return out or (Path(place) if Path(place).is_dir() else Path(kind) / Path(place).stem)


def data_asked(word: str | None, model: Model, label: str, size: tuple[int, int] | None) -> DataSet:
    """As named, or a run's own."""
    if word is not None:
        return data_named(Choice(word, "", label=label, size=size))
    if model.trial is None:
        raise ValueError("a model that is no run of ours needs --data")
    return model.trial.data


def with_tests(data: DataSet) -> tuple[str, Parts]:
    """What it is called, and its parts."""
    drawn = data.draw()
    if not isinstance(drawn, Parts):
        raise ValueError("there must be a test part, got points of a toy set: give --data")
    if isinstance(data, OwnData):
        return Path(drawn.test.origin.place).name, drawn
    return data.name if isinstance(data, ImageSet) else type(data).__name__, drawn
