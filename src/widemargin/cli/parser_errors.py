"""What the parser of options complains of, in a box of several lines, as one sentence."""

from __future__ import annotations

import ast
import io
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_RULE = re.compile("[─-]{3,}")
_MISSING = re.compile(r"Missing from ([a-z ]+):")
_COMMAND = re.compile(r"For full helptext, (?:run|see):? +(widemargin[a-z ]*) --help")
_CHOICE = re.compile(r"invalid choice '(.*)' for argument '(\S+)'\. Expected one of (\(.*\))\.")
_VALUE = re.compile(r"Error parsing (\S+): (.*)")
_GOT = re.compile(r"instantiated from (\[.*?\])|base 10: ('.*?')")
_WHOLE = ("<class 'int'>", "literal for int()")


@contextmanager
def one_sentence(command: str) -> Iterator[None]:
    """A ValueError in place of a box and exit code 2; `command` is what was called."""
    box = io.StringIO()
    try:
        with redirect_stderr(box):
            yield
    except SystemExit as end:
        if end.code == 2 and box.getvalue():
            raise ValueError(sentence_of(box.getvalue(), command)) from None
        raise


def sentence_of(box: str, command: str) -> str:
    # The first line is a title, where boxes cannot be drawn with a rule below it.
    lines = [_STYLE.sub("", line).strip("│╰╯").rstrip() for line in box.splitlines()[1:]]
    lines = lines[1:] if lines and _RULE.fullmatch(lines[0].strip()) else lines
    rules = [place for place, line in enumerate(lines) if _RULE.fullmatch(line.strip())]
    body = textwrap.dedent("\n".join(lines[: rules[0] if rules else len(lines)])).splitlines()
    text = " ".join(" ".join(body).split())
    seen = _COMMAND.search(" ".join(" ".join(lines).split()))
    command = max(command, seen[1] if seen else "", key=len)
    help_text = f"`{command} --help` shows all"
    missing = _MISSING.search(text)
    if missing:
        # Names are indented by four spaces, what is said of them by more.
        needed = [line.split()[0] for line in body[1:] if re.match(r" {4}\S", line)]
        return f"`{missing[1]}` needs {' and '.join(needed)}: {help_text}"
    choice = _CHOICE.search(text)
    if choice:
        said = sorted({*ast.literal_eval(choice[3])} - {"None"})
        return f"{choice[2]} must be one of {', '.join(said)}, got {choice[1]}"
    value = _VALUE.search(text)
    if value:
        got = _GOT.search(text)
        given = ast.literal_eval(got[1] or got[2]) if got else []
        shown = given if isinstance(given, str) else " ".join(given)
        kind = "a whole number" if any(word in text for word in _WHOLE) else "as its help says"
        return f"{value[1]} must be {kind}, got {shown or 'nothing'}: {help_text}"
    if text.startswith("Expected one of {"):
        return f"`{command}` needs a subcommand, one of {text[17:].rstrip('.}')}"
    if text.startswith("Missing value for argument "):
        # A positional argument is called by the group of options that it is in.
        name = re.sub(r"^group-\d+\.(.*)", lambda positional: positional[1].upper(), text.split()[4].strip("'."))
        return f"{name} needs a value: {help_text}"
    if text.startswith("Unrecognized options: "):
        return f"`{command}` takes no {text.removeprefix('Unrecognized options: ')}: {help_text}"
    return f"{text.rstrip('.')}: {help_text}"
