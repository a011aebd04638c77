import re
from dataclasses import dataclass, fields
from typing import ClassVar

import pytest

from widemargin import cli
from widemargin.cli import VERBS
from widemargin.cli.verbs.groups import flat, grouped, groups_of, title_of
from widemargin.cli.verbs.train import Train

_MOST = 14
"""Options that a reader can take in at once."""


@dataclass(frozen=True)
class Main:
    name: str
    size: int = 3


@dataclass(frozen=True)
class More:
    title: ClassVar[str] = "more"

    depth: int = 1


@dataclass(frozen=True)
class Verb(More, Main):
    """Does it."""


def test_a_verb_is_made_of_its_groups_and_back() -> None:
    kind = grouped(Verb)
    assert [(group, title_of(group)) for group in groups_of(Verb)] == [(Main, ""), (More, "more")]
    assert kind.__doc__ == "Does it."
    assert flat(kind(Main("a", 4), More(2))) == Verb("a", 4, 2)
    # One that has no groups stays as it is.
    assert grouped(Main) is Main
    assert flat(Main("a")) == Main("a")


@pytest.mark.parametrize("verb", [kind for kind in VERBS.values() if isinstance(kind, type)])
def test_no_group_is_long_and_no_option_stands_twice(verb: type) -> None:
    groups = groups_of(verb)
    names = [field.name for group in groups for field in fields(group)]
    assert sorted(names) == sorted({field.name for field in fields(verb)})
    titled: dict[str, int] = {}
    for group in groups:
        titled[title_of(group)] = titled.get(title_of(group), 0) + len(fields(group))
    assert max(titled.values()) <= _MOST, titled


def test_what_matters_comes_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    # A terminal that knows no lines gets a title on a line of its own.
    _, *parts = re.split(r"^\W*((?:[a-z]+ )*options) .*$", capsys.readouterr().out, flags=re.MULTILINE)
    titles, boxes = parts[::2], parts[1::2]
    assert titles == [
        "options", "data options", "table options", "method options", "network options", "optimisation options",
        "validation and output options",
    ]  # fmt: skip
    for option in ("data", "method", "network", "label", "eps", "norm", "epochs", "out"):
        assert f"--{option} " in boxes[0]


def test_options_of_all_groups_are_read() -> None:
    words = "train --data x.csv --method udp --eps 8/255 --drop id --width 9 --batch 4 --stop-after 2m --latent"
    assert cli.verb_of(words.split()) == Train(
        "x.csv", "udp", eps=8 / 255, drop="id", width=9, batch=4, stop_after="2m", latent=True
    )
