"""Docs/reliability.md holds what was seen, and nothing else."""

import pytest

from faults.tally import Tally


def failing(tally: Tally) -> None:
    with tally.of("b: damaged") as counted:
        counted.tried = 1
        raise ZeroDivisionError


def test_rows_are_of_tests_that_passed() -> None:
    tally = Tally()
    for what, tried in (("a: killed, at random", 1_234), ("b: damaged", 5)):
        with tally.of(what) as counted:
            counted.tried = tried
    assert "| a: killed, at random | 1,234 | 1,234 |" in tally.page()
    assert "| **all** | 1,239 | 1,239 |" in tally.page()
    again = Tally.of_page(tally.page())
    assert again.rows == tally.rows
    with pytest.raises(ZeroDivisionError):
        failing(again)
    assert again.rows == {"a: killed, at random": 1_234}
    with pytest.raises(AssertionError, match="nothing was tried"), again.of("c"):
        pass
    assert "c" not in again.rows
