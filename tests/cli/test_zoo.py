import json

import pytest

from command import refused, widemargin
from widemargin.cli.zoo import described, table
from widemargin.io.zoo import Card, Measured

CARD = Card("tiny", "digits", "lenet", "udp", 3, 0, (Measured("clean", 0.5, 1036),), "Tab. 2", "widemargin train")


def test_what_was_not_measured_of_a_network_is_left_empty() -> None:
    other = Card("other", "digits", "lenet", "pgd", 1, 0, (Measured("PGD-20", 0.25, 36),), "Tab. 2", "again")
    shown = table((CARD, other))
    assert shown.columns == ("name", "method", "epochs", "clean", "PGD-20")
    assert shown.rows == (("tiny", "udp", "3", "50.0", ""), ("other", "pgd", "1", "", "25.0"))


def test_one_network_is_described() -> None:
    lines = described(CARD).splitlines()
    assert lines[0] == "zoo:tiny"
    assert "  clean: 50.0 % of 1,036 test points" in lines
    assert lines[-1] == "  repeat it: widemargin train"


def test_the_command_shows_all_or_one(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin("zoo --json")
    names = [network["name"] for network in json.loads(capsys.readouterr().out)["networks"]]
    widemargin(f"zoo {names[0]} --json")
    assert [network["name"] for network in json.loads(capsys.readouterr().out)["networks"]] == names[:1]
    assert "'nothing' is not in the zoo" in refused("zoo nothing", capsys)
