"""A study: work that fills a store, and a report that reads it."""

from __future__ import annotations

import difflib
from typing import NamedTuple, Protocol, cast, runtime_checkable

from widemargin.report.contents import studies
from widemargin.report.document import Report
from widemargin.report.store import Store
from widemargin.workers import Workers


class Left(NamedTuple):
    """What is still to do."""

    pieces: int
    of: int
    core_minutes: float


class Study(Protocol):
    """Whatever an entry point names; ours are frozen dataclasses, with their sizes as further fields."""

    @property
    def TITLE(self) -> str: ...
    @property
    def CORE_MINUTES(self) -> float:
        """About how long all of it takes on one core."""
        ...

    def run(self, store: Store, workers: Workers) -> None:
        """Do what is not yet in the store."""
        ...

    def missing(self, store: Store) -> int:
        """How many pieces of work are not yet in the store."""
        ...

    def report(self, store: Store) -> Report: ...


def names() -> list[str]:
    return list(studies())


def load(name: str) -> Study:
    known = studies()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.3)
        hint = f"did you mean {' or '.join(close)}?" if close else "`widemargin study list` shows all."
        raise ValueError(f"there is no study named {name!r}: {hint}")
    return cast(Study, known[name].load())


@runtime_checkable
class Reckoning(Protocol):
    """A study that knows what is left better than by counting its pieces."""

    def left(self, store: Store) -> Left: ...


def left(study: Study, store: Store) -> Left:
    if isinstance(study, Reckoning):
        return study.left(store)
    done, of = stored(study, store)
    return Left(of - done, of, study.CORE_MINUTES * (of - done) / of)


def stored(study: Study, store: Store) -> tuple[int, int]:
    """How many of its parts are in the store, and how many there are."""
    of = study.missing(Store(store.root / "nowhere"))
    return of - study.missing(store), of
