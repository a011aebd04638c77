"""Whatever stands in a file, a schema is one of a table or refused in one sentence."""

import json
import time
from typing import Any

import pytest

from widemargin.data.columns import CategoryColumn, NumberColumn
from widemargin.data.schema import Schema
from widemargin.data.schema_check import checked_schema

# Types are checked at run time in tests only: here wrong ones must arrive.
pytestmark = pytest.mark.usefixtures("untyped")
SCHEMA = Schema(
    "kind",
    ("no", "yes"),
    (NumberColumn("age", 1.0, 90.0, 20.0, 40.0, 20.0, median=39.0), CategoryColumn("colour", ("green", "red"), True)),
    dropped=("id",),
)


def test_what_was_written_is_read() -> None:
    assert checked_schema(json.loads(json.dumps(SCHEMA.to_dict()))) == SCHEMA


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 3}, "a text for its label"),
        ({"standardized": "yes"}, "true or false for standardized"),
        ({"classes": ["no"]}, "2 to 100,000 classes"),
        ({"classes": "no"}, "2 to 100,000 classes"),
        ({"classes": [["no"], "yes"]}, "classes that are texts or numbers"),
        ({"classes": ["no", "no"]}, "different, finite classes"),
        ({"classes": [0, float("nan")]}, "different, finite classes"),
        ({"classes": ["no", "y" * 2_000]}, "at most 1,000 characters"),
        ({"fixed_columns": [1]}, "names for fixed_columns"),
        ({"fixed_columns": ["wide"]}, "columns of the names in fixed_columns"),
        ({"columns": []}, "1 to 100,000 columns"),
        ({"perturbed_columns": ["age"], "category_changes": 1}, "perturbed_columns of categories that are not fixed"),
        ({"perturbed_columns": ["colour"], "category_changes": 10**9}, "at most one change for each"),
        ({"perturbed_columns": ["colour"], "fixed_columns": ["colour"]}, "that are not fixed"),
        ({"category_changes": -1}, "for category_changes"),
        ({"label": "age"}, "different names for its columns and its label"),
        ({"fixed_columns": ["age"]}, "one of which at least may change"),
        ({"classes": ["\ud800", "yes"]}, "texts of whole characters"),
        ({"dropped": ["\ud800"]}, "texts of whole characters"),
        ({"more": 1}, "it is no schema"),
    ],
)
def test_wrong_schemas_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked_schema({**SCHEMA.to_dict(), **change})


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (0, {"scale": 0.0}, "a scale above 0 for 'age'"),
        (0, {"scale": float("nan")}, "a scale above 0 for 'age'"),
        (0, {"scale": "__import__('os')"}, "a scale above 0 for 'age'"),
        (0, {"shift": 10**400}, "finite 32-bit numbers for 'age'"),
        (0, {"median": [1]}, "finite 32-bit numbers for 'age'"),
        (0, {"low": 91.0}, "low not above high"),
        (0, {"is_id": 1}, "true or false for whether it is an id"),
        (0, {"name": None}, "texts for names"),
        (1, {"name": "age"}, "different names"),
        (1, {"values": ["red", "red"]}, "different texts for the categories of 'colour'"),
        (1, {"values": {"red": 1}}, "different texts for the categories of 'colour'"),
        (1, {"values": ["red", "r" * 2_000]}, "at most 1,000 characters in the name and the categories of 'colour'"),
        (1, {"name": "c" * 2_000}, "at most 1,000 characters in the name and the categories of 'c"),
        (1, {"missing": None}, "whether 'colour' may be missing"),
        (1, {"kind": "own"}, "it is no schema"),
    ],
)
def test_wrong_columns_are_refused(place: int, change: dict[str, Any], message: str) -> None:
    content = SCHEMA.to_dict()
    content["columns"][place] |= change
    with pytest.raises(ValueError, match=message):
        checked_schema(content)


@pytest.mark.parametrize("content", [None, 3, [], "schema", {"columns": 3}])
def test_what_is_no_schema(content: Any) -> None:
    with pytest.raises(ValueError, match="it is no schema"):
        checked_schema(content)


def test_names_of_features_are_not_made_for_the_check() -> None:
    """A long name of a column with many categories would take all memory."""
    assert "features" not in vars(checked_schema(SCHEMA.to_dict()))
    number, category = SCHEMA.to_dict()["columns"]
    many = {**category, "name": "c" * 1_000, "values": [str(place) for place in range(100_000)]}
    with pytest.raises(ValueError, match="at most 100,000 features"):
        checked_schema({**SCHEMA.to_dict(), "columns": [number, many]})


def test_many_columns_that_are_fixed_take_little_time() -> None:
    names, number = [str(place) for place in range(10_000)], {**SCHEMA.to_dict()["columns"][0], "median": None}
    wide = {**SCHEMA.to_dict(), "columns": [{**number, "name": name} for name in names], "fixed_columns": names[1:]}
    begun = time.process_time()
    assert checked_schema(wide).fixed[-1] == 9_999
    assert time.process_time() - begun < 1
