"""Parts as numbers, text, lists and mappings, and back: what run.yaml holds.  Reading it runs no code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from widemargin.data.limits import listed, quoted, reason, short
from widemargin.parts import PARTS, import_rooms
from widemargin.perturb import objectives
from widemargin.perturb.objectives import Objective, Term

TERMS: dict[str, Term] = {
    term.name: term for value in vars(objectives).values() if isinstance(value, Objective) for _, term in value.terms
}
LATER = {
    "Box": {"fixed"},
    "Method": {"class_weights"},
    "Table": {"decimal"},
    "Columns": {"category_changes", "perturbed"},
}
"""Fields that parts got after version 2 began: left out while they have their default, so that keys stay."""
WRITTEN = {"Ascent": {"fraction": "share"}}
"""Fields that were renamed after version 2 began: files and keys keep the name that they had."""
_UNREADABLE = "own"
"""Instead of a part's name, for what is no part."""


def to_dict(part: Any) -> Any:
    """`Adam(0.1)` is `{"Adam": {"lr": 0.1, ...}}`.

    What is no part is written as its repr, under a name that cannot be read back.
    """
    if part is None or isinstance(part, bool | int | float | str):
        return part
    if isinstance(part, tuple):
        return [to_dict(item) for item in part]
    if isinstance(part, Objective):
        return {"Objective": [[weight, _term(term)] for weight, term in part.terms]}
    if is_dataclass(part) and PARTS.get(type(part).__name__) is type(part):
        return {type(part).__name__: {name: to_dict(value) for name, value in _shown(part)}}
    return {_UNREADABLE: repr(part)}


def _shown(part: Any) -> Iterator[tuple[str, Any]]:
    name = type(part).__name__
    later, written = LATER.get(name, set()), WRITTEN.get(name, {})
    for field in fields(part):
        value = getattr(part, field.name)
        if field.name not in later or value != field.default:
            yield written.get(field.name, field.name), value


def _term(term: Term) -> Any:
    return term.name if TERMS.get(term.name) == term else {_UNREADABLE: term.name}


def from_dict(value: Any) -> Any:
    """The part that `to_dict` wrote; only parts that this process knows already can be made."""
    import_rooms()
    if isinstance(value, list):
        return tuple(from_dict(item) for item in value)
    if not isinstance(value, Mapping):
        return value
    if len(value) != 1:
        raise ValueError(f"a part must be one name with its fields, got {listed(value) or 'nothing'}")
    ((name, inner),) = value.items()
    if name == _UNREADABLE:
        raise ValueError(
            f"{inner} is your own and cannot be read from a file: resume by calling fit again from Python with the "
            "same arguments"
        )
    if name == "Objective":
        return _objective(inner)
    if name not in PARTS:
        raise ValueError(
            f"{quoted(str(name))} is no part of widemargin: it can be one of {', '.join(sorted(PARTS))}, or one in "
            "a module of yours that is imported before"
        )
    if not isinstance(inner, Mapping):
        raise ValueError(f"{name} must have fields, got {short(repr(inner))}")
    now = {then: field for field, then in WRITTEN.get(name, {}).items()}
    inner = {now.get(field, field): content for field, content in inner.items()}
    known = {field.name for field in fields(PARTS[name])}
    strange = [str(field) for field in inner if field not in known]
    if strange:
        raise ValueError(f"{name} has no field {strange[0]!r}: it has {', '.join(sorted(known)) or 'none'}")
    try:
        return PARTS[name](**{str(field): from_dict(content) for field, content in inner.items()})
    except (TypeError, AttributeError, ArithmeticError, LookupError, RuntimeError) as problem:
        raise ValueError(f"{name} cannot be made of {short(str(dict(inner)))}: {reason(problem)}") from None


def _objective(terms: Any) -> Objective:
    try:
        pairs = [(float(weight), name) for weight, name in terms]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"an Objective must be a list of weights and names, got {short(repr(terms))}") from None
    if not pairs:
        raise ValueError("an Objective must have at least one term, got none")
    weighted = []
    for weight, name in pairs:
        if isinstance(name, Mapping):
            from_dict(name)
        if not isinstance(name, str) or name not in TERMS:
            raise ValueError(
                f"{short(repr(name))} is no term of an objective: it can be one of {', '.join(sorted(TERMS))}"
            )
        weighted.append((weight, TERMS[name]))
    return Objective(tuple(weighted))
