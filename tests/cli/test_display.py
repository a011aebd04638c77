import io
import json
from math import inf, nan

import pytest
from rich.console import Console

from widemargin.cli.display import Display, print_json, say
from widemargin.training.loop import Record


def test_a_line_is_said_as_it_is() -> None:
    out = io.StringIO()
    line = "a [b]folder[/b] :smile: " + 100 * "x"
    say(Console(file=out, width=80), line)
    assert out.getvalue() == f"{line}\n"


def test_json_has_null_for_what_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": nan, "b": [1.0, inf, {"c": (-inf, 2)}], "d": "x"})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.0, None, {"c": [None, 2]}], "d": "x"}


def test_where_no_bar_can_be_drawn_there_are_lines_only() -> None:
    out = io.StringIO()
    display = Display(Console(file=out))
    display.begin(3, 10)
    display.updated(Record(4, 0.5))
    display.validated({"epoch": 2, "clean": 0.25})
    display.end()
    going_on, validated = out.getvalue().splitlines()
    assert going_on == "going on after update 3 of 10"
    assert validated.startswith("epoch 2: clean 25")
