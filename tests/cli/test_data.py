from dataclasses import fields

import pytest

from widemargin.cli.separation import _SHARED
from widemargin.cli.verbs.data import Measured, Parts, TableColumns
from widemargin.cli.verbs.groups import groups_of
from widemargin.cli.verbs.separation import Separation
from widemargin.cli.verbs.sweep import Sweep
from widemargin.cli.verbs.train import Train


@pytest.mark.parametrize("verb", [Train, Sweep, Separation])
def test_what_decides_how_a_file_is_read_can_be_said_wherever_one_is(verb: type) -> None:
    assert {Parts, TableColumns} <= set(groups_of(verb))


def test_separation_hands_all_of_it_on() -> None:
    assert {field.name for group in (Parts, TableColumns) for field in fields(group)} <= set(_SHARED)
    assert set(_SHARED) <= {field.name for field in fields(Train)}


def test_a_model_is_measured_on_examples_that_are_named() -> None:
    assert [field.name for field in fields(Measured)] == ["data", "test", "label", "decimal", "size", "weights"]
