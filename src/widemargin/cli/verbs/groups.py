"""Options in groups: a verb inherits the classes that hold its options, and each is a box in its help.

Classes without a title come first, under "options": there is what most people need.  A class of options that several
verbs share is written once."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, make_dataclass
from functools import cache
from typing import Annotated, Any

from tyro.conf import arg


def groups_of(verb: type) -> list[type]:
    """The classes whose options a verb has, in the order of its fields."""
    bases = [base for base in reversed(verb.__mro__[1:]) if is_dataclass(base)]
    return bases or [verb]


def title_of(group: type) -> str:
    title: str = group.__dict__.get("title", "")
    return title


@cache
def grouped(verb: type) -> type:
    """What tyro reads in place of the verb: a field for each group; `flat` makes the verb of it."""
    groups = groups_of(verb)
    if groups == [verb]:
        return verb
    named: list[tuple[str, Any]] = [
        (f"group_{number}", Annotated[group, arg(name=title_of(group))]) for number, group in enumerate(groups)
    ]
    made = make_dataclass(verb.__name__, named, frozen=True, namespace={"grouped_verb": verb})
    made.__doc__ = verb.__doc__
    return made


def flat(parsed: Any) -> Any:
    """The verb, from its groups."""
    if not hasattr(parsed, "grouped_verb"):
        return parsed
    groups = [getattr(parsed, field.name) for field in fields(parsed)]
    return parsed.grouped_verb(
        **{field.name: getattr(group, field.name) for group in groups for field in fields(group)}
    )
