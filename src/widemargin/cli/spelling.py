"""A sentence for a verb or an option that does not exist, with the nearest one that does."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields

Verbs = Mapping[str, "type | Verbs"]

RENAMED = {"--rate": "--lr", "--decay": "--schedule"}
"""Options that had another name before."""
# tyro's own: --tyro-print-completion and --tyro-write-completion.
_EVERYWHERE = ("--help", "--tyro-")


def check_words(words: Sequence[str], verbs: Verbs, command: str = "widemargin") -> None:
    """ValueError for the first word that no verb knows; what else may be wrong is for the parser."""
    if not words or words[0].startswith("-"):
        return
    if words[0] not in verbs:
        raise ValueError(f"`{command}` has no verb {words[0]}{_hint(words[0], verbs, command)}")
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
        raise ValueError(f"`{command}` has no option {option}{_hint(option, options, command)}")


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
