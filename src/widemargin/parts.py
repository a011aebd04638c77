"""The registry of parts: frozen dataclasses that decide a number, which a run.yaml and the command line can name.

A part is known as soon as the module that defines it is imported; nothing is ever imported because a file names it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache
from typing import Any, TypeVar

PARTS: dict[str, type] = {}
"""By name: the only names that a file can use."""
CHOICES: dict[str, dict[str, Callable[..., Any]]] = {}
"""By kind and by the word on the command line: what makes such a part."""
_ROOMS = ("data", "networks", "uncertainty", "perturb", "method", "training", "runs.run", "runs.user_network")
"""Where the library's own parts are."""
Part = TypeVar("Part", bound=type)


def part(cls: Part) -> Part:
    """Let files name this frozen dataclass."""
    if not is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise TypeError(
            f"a part must be a frozen dataclass, got {cls.__name__}: decorate it by @dataclass(frozen=True)"
        )
    other = PARTS.get(cls.__name__, cls)
    if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise TypeError(f"two parts are called {cls.__name__}, in {other.__module__} and {cls.__module__}: rename one")
    PARTS[cls.__name__] = cls
    return cls


def choice(kind: str, word: str = "") -> Callable[[Part], Part]:
    """A part that the command line offers too, under its name in small letters or another word."""

    def register(cls: Part) -> Part:
        CHOICES.setdefault(kind, {})[word or cls.__name__.lower()] = part(cls)
        return cls

    return register


def choices(kind: str) -> dict[str, Callable[..., Any]]:
    """What the command line offers of a kind: `choices("norm")` has linf, l2, l1 and those of the user."""
    import_rooms()
    return CHOICES[kind]


@cache
def import_rooms() -> None:
    """Import all modules that define the library's own parts, so that they are registered."""
    for room in _ROOMS:
        module = importlib.import_module(f"widemargin.{room}")
        for inner in pkgutil.iter_modules(getattr(module, "__path__", ())):
            importlib.import_module(f"{module.__name__}.{inner.name}")
