"""A sentence for a subcommand or an option that does not exist, with the nearest one that does."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import get_type_hints

from widemargin.arguments import called_here

Verbs = Mapping[str, "type | Verbs"]

RENAMED = {"--rate": "--lr", "--decay": "--schedule"}
"""Options that had another name before."""
# tyro's own: --tyro-print-completion and --tyro-write-completion.
_EVERYWHERE = ("--help", "--tyro-")


def check_words(words: Sequence[str], verbs: Verbs, command: str = "widemargin") -> None:
    """ValueError for the first word that no subcommand knows; what else may be wrong is for the parser."""
    if not words or words[0].startswith("-"):
        return
    if words[0] not in verbs:
        raise ValueError(f"`{command}` has no subcommand {words[0]}{_hint(words[0], verbs, command)}")
    kind, command = verbs[words[0]], f"{command} {words[0]}"
    if isinstance(kind, Mapping):
        check_words(words[1:], kind, command)
        return
    options = [f"--{field.name.replace('_', '-')}" for field in fields(kind)]
    for word in words[1:]:
        option = word.partition("=")[0].replace("_", "-")
        if not option.startswith("--") or option in options or option.startswith(_EVERYWHERE):
            continue
        new = RENAMED.get(option)
        if new in options:
            raise ValueError(f"{option} is now called {new}")
        if option in _aliases(kind):
            continue
        ours = called_here(option[2:].replace("-", "_"), [field.name for field in fields(kind)])
        if ours:
            raise ValueError(f"`{command}` has no option {option}: it is called --{ours.replace('_', '-')}")
        raise ValueError(f"`{command}` has no option {option}{_hint(option, options, command)}")


def _aliases(kind: type) -> set[str]:
    """Second names of options, which are in the annotations of their fields."""
    hints = get_type_hints(kind, include_extras=True).values()
    notes = [note for hint in hints for note in getattr(hint, "__metadata__", ())]
    return {alias for note in notes for alias in getattr(note, "aliases", None) or ()}


def option_of(value: str, words: Sequence[str]) -> str:
    """The option to which a value was given."""
    option = ""
    for word in words:
        option = word.partition("=")[0] if word.startswith("--") else option
        if word in (value, f"{option}={value}"):
            break
    return option


def _hint(word: str, known: Collection[str], command: str) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f": did you mean {close[0]}?" if close else f": `{command} --help` shows all"
