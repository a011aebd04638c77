"""How runs were written and keyed before version 2 (2026): read here, so that they can be continued and compared."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

NUMBERS = {"": 2, "ResNetSpec": 2}
"""`keys.NUMBERS` of that time."""
_NAMES = {
    "Trial": "Run",
    "LeNetShape": "LeNetSpec",
    "ResNetShape": "ResNetSpec",
    "DropoutResNetShape": "DropoutResNetSpec",
    "ResidualShape": "ResidualMLPSpec",
    "Widths": "MLPSpec",
    "OwnNetwork": "UserNetwork",
    "OwnData": "LocalData",
    "OneNetwork": "SingleSpec",
    "Members": "EnsembleSpec",
    "DropoutDraws": "MCDropoutSpec",
    "DeepKernelGP": "DeepKernelSpec",
    "Whole": "FullStep",
    "Part": "RandomFraction",
    "Fading": "LinearDecay",
    "ToZero": "ProjectToBoundary",
    "Even": "UniformWeights",
    "Nearness": "BoundaryWeights",
    "SelfScaledNearness": "SelfScaledBoundaryWeights",
    "AsTheyAre": "NoAugment",
    "LastWeights": "NoAverage",
}
"""Names of parts then and now."""
_FIELDS = {
    "Run": {"members": "estimator"},
    "Ascent": {"share": "fraction"},
    "Adam": {"rate": "lr", "decay": "schedule"},
    "SGD": {"rate": "lr", "decay": "schedule"},
}
"""By the part's present name: names of its fields then and now."""
_SHOWN_IF_CHANGED = {
    "Run": {"estimator"},
    "Validation": {"watched"},
    "Plan": {"average", "mixed"},
    "LeNetSpec": {"dropout"},
    "MLPSpec": {"dropout"},
    "Npz": {"unlabelled"},
    "Table": {"decimal"},
    "Method": {"class_weights"},
    "Columns": {"category_changes", "perturbed"},
}
"""Fields that a key left out while they had their default; a field that is added to a part later belongs here too."""

_REPRS = {"Box", "Objective", "Term", "FMN", "BisectedAPGD"}
"""Dataclasses with a repr of their own, which is as it was."""


def renamed(value: Any) -> Any:
    """A description of version 1 in today's words."""
    if isinstance(value, list):
        return [renamed(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    parts = {_NAMES.get(name, name) if isinstance(name, str) else name: inner for name, inner in value.items()}
    return {name: _fields_renamed(name, renamed(inner)) for name, inner in parts.items()}


def _fields_renamed(name: Any, inner: Any) -> Any:
    words = _FIELDS.get(name, {}) if isinstance(name, str) else {}
    if not words or not isinstance(inner, Mapping):
        return inner
    return {words.get(field, field): content for field, content in inner.items()}


def earlier(value: Any) -> Any:
    """The other way round: a description of today in the words of version 1."""
    if isinstance(value, list):
        return [earlier(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {_EARLIER.get(name, name): earlier(_fields_earlier(name, inner)) for name, inner in value.items()}


def _fields_earlier(name: str, inner: Any) -> Any:
    words = {now: then for then, now in _FIELDS.get(name, {}).items()}
    return {words.get(field, field): content for field, content in inner.items()} if words else inner


def keys_of(*parts: object) -> tuple[str, ...]:
    """In the plane a run had fewer fields and another name than elsewhere, so there may be two."""
    texts = [_text(parts, plane=False)]
    if "network=Widths(" in texts[0]:
        texts.append(_text(parts, plane=True))
    return tuple(map(key_of_text, texts))


def key_of_text(text: str) -> str:
    said = re.sub(r"\bResNetShape\(", f"ResNetShape {NUMBERS['ResNetSpec']}(", text)
    return hashlib.sha256(f"{NUMBERS['']} {said}".encode()).hexdigest()[:16]


def _text(value: Any, plane: bool) -> str:
    """The repr that a key was taken of."""
    if isinstance(value, tuple):
        items = [_text(item, plane) for item in value]
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text(name, plane)}: {_text(item, plane)}' for name, item in value.items())}}}"
    if not is_dataclass(value) or isinstance(value, type) or type(value).__name__ in _REPRS:
        return repr(value)
    name = type(value).__name__
    named = "Run" if plane and name == "Run" else _EARLIER.get(name, name)
    shown = ", ".join(f"{field}={_text(content, plane)}" for field, content in _shown(value, plane))
    return f"{named}({shown})"


def _shown(part: Any, plane: bool) -> Iterator[tuple[str, Any]]:
    name = type(part).__name__
    earlier = {now: then for then, now in _FIELDS.get(name, {}).items()}
    later = _SHOWN_IF_CHANGED.get(name, set())
    if plane and name == "Run":
        later = later | {"place", "validation"}
    for field in fields(part):
        content = getattr(part, field.name)
        if field.repr and not (field.name in later and content == field.default):
            yield earlier.get(field.name, field.name), content


_EARLIER = {now: then for then, now in _NAMES.items()}
