"""The model zoo: trained networks that come with the library, each a finished run and a card with its results."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from widemargin.files import Damaged, read_json, write_json
from widemargin.runs.folder import RunFolder

ZOO = Path(__file__).parents[1] / "zoo"
PREFIX = "zoo:"


@dataclass(frozen=True)
class Measured:
    """A fraction of n test points: of clean ones, or of points under an attack that says norm and radius."""

    what: str
    value: float
    n: int


@dataclass(frozen=True)
class Card:
    name: str
    data: str
    network: str
    method: str
    epochs: int
    seed: int
    figures: tuple[Measured, ...]
    source: str
    """The place of such a network in the paper."""
    command: str
    """Trains it again."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Card:
        figures = tuple(Measured(**figure) for figure in content["figures"])
        return cls(**{**content, "figures": figures})


def cards(zoo: Path = ZOO) -> tuple[Card, ...]:
    """All, by name."""
    return tuple(_card(path) for path in sorted(zoo.glob("*/card.json")))


def zoo_run(name: str, zoo: Path = ZOO) -> RunFolder:
    """The folder of a network; ValueError that lists all networks if there is none of this name."""
    folder = zoo / name
    if not (folder / "card.json").is_file():
        known = ", ".join(card.name for card in cards(zoo)) or "none"
        raise ValueError(f"{name!r} is not in the zoo, which has {known}")
    return RunFolder(folder)


def put(run: RunFolder, weights: Path, card: Card, zoo: Path = ZOO) -> Path:
    """Copy what is needed to use and audit a run: its description and its weights."""
    folder = RunFolder(zoo / card.name)
    folder.path.mkdir(parents=True, exist_ok=True)
    for source, target in ((run.description, folder.description), (weights, folder.last)):
        shutil.copyfile(source, target)
    write_json(folder.path / "card.json", asdict(card))
    return folder.path


def columns(listed: Sequence[Card]) -> tuple[str, ...]:
    """The names of all results of these networks, in the order in which they first appear."""
    return tuple(dict.fromkeys(figure.what for card in listed for figure in card.figures))


def _card(path: Path) -> Card:
    try:
        return Card.of(read_json(path))
    except (Damaged, KeyError, TypeError) as problem:
        raise ValueError(f"{path} is damaged ({problem}): install widemargin again") from None
