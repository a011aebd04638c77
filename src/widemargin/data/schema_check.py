"""Checks of a schema that was read from a file, which anybody may have written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from widemargin.data.columns import CategoryColumn, NumberColumn, SchemaColumn
from widemargin.data.limits import MOST_CLASSES, MOST_COLUMNS, MOST_NAME, quoted
from widemargin.data.schema import Schema

_LARGEST = float(np.finfo(np.float32).max)
_KINDS = {tuple: "names", bool: "true or false", int: "a whole number of at least 0"}
_LEAST = float(np.finfo(np.float32).tiny)


def checked_schema(content: Any) -> Schema:
    """ValueError in one sentence if it is none, or has what no table can have."""
    schema = Schema.from_dict(content)
    problem = next(_problems(schema), None)
    if problem is not None:
        raise ValueError(f"a schema must have {problem}")
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # JSON can say half of a character, which no file or page can hold.
        raise ValueError("a schema must have texts of whole characters") from None
    return schema


def _problems(schema: Schema) -> Iterator[str]:
    """What it must have and has not, the first first: later checks rest on those before."""
    if not isinstance(schema.label, str):
        yield "a text for its label"
    if not _is_tuple(schema.classes, str | int | float) or not 2 <= len(schema.classes) <= MOST_CLASSES:
        yield f"2 to {MOST_CLASSES:,} classes that are texts or numbers"
    if len(set(schema.classes)) < len(schema.classes) or any(not _is_class(name) for name in schema.classes):
        yield f"different, finite classes of at most {MOST_NAME:,} characters"
    for field in fields(schema):
        # Those that a file may lack; their defaults say what they are.
        value, usual = getattr(schema, field.name), field.default
        if usual is not MISSING and not (_is_tuple(value, str) if usual == () else _is_like(value, usual)):
            yield f"{_KINDS[type(usual)]} for {field.name}"
    if not 1 <= len(schema.columns) <= MOST_COLUMNS or not all(isinstance(name, str) for name in schema.names):
        yield f"1 to {MOST_COLUMNS:,} columns, with texts for names"
    if len({*schema.names, schema.label}) <= len(schema.names):
        yield "different names for its columns and its label"
    for field in fields(schema):
        if field.name.endswith("_columns") and not set(getattr(schema, field.name)) <= set(schema.names):
            yield f"columns of the names in {field.name}"
    categories = {column.name for _, column in schema.categories} - set(schema.fixed_columns)
    if not set(schema.perturbed_columns) <= categories or schema.category_changes > len(schema.perturbed_columns):
        yield "perturbed_columns of categories that are not fixed, and at most one change for each"
    for column in schema.columns:
        yield from _column_problems(column)
    if schema.feature_count > MOST_COLUMNS or len(schema.fixed) == schema.feature_count:
        yield f"at most {MOST_COLUMNS:,} features, one of which at least may change"


def _column_problems(column: SchemaColumn) -> Iterator[str]:
    called = quoted(column.name)
    if isinstance(column, CategoryColumn):
        if not _is_tuple(column.values, str) or len(set(column.values)) < len(column.values):
            yield f"different texts for the categories of {called}"
        if any(len(text) > MOST_NAME for text in (column.name, *column.values)):
            # Both stand in the name of each feature.
            yield f"at most {MOST_NAME:,} characters in the name and the categories of {called}"
        if not isinstance(column.missing, bool):
            yield f"true or false for whether {called} may be missing"
        return
    yield from _number_problems(column, called)


def _number_problems(column: NumberColumn, called: str) -> Iterator[str]:
    numbers = (column.low, column.high, column.shift, 0.0 if column.median is None else column.median)
    if not all(_is_number(value) for value in numbers) or not column.low <= column.high:
        yield f"finite 32-bit numbers for {called}, low not above high"
    if not _is_number(column.scale) or not column.scale >= _LEAST:
        yield f"a scale above 0 for {called}"
    if not _is_number(column.spread) or column.spread < 0 or not isinstance(column.is_id, bool):
        yield f"a spread of at least 0 for {called}, and true or false for whether it is an id"


def _is_like(value: Any, usual: Any) -> bool:
    """Of the same type, and if it is a number not below 0."""
    return type(value) is type(usual) and value >= 0


def _is_tuple(values: Any, kind: Any) -> bool:
    return isinstance(values, tuple) and all(
        isinstance(value, kind) and not isinstance(value, bool) for value in values
    )


def _is_class(name: Any) -> bool:
    return len(name) <= MOST_NAME if isinstance(name, str) else -np.inf < name < np.inf


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST
