"""The metadata of an exported model of a table: read back if it is true, refused in one sentence if it is not."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from widemargin.data.columns import CategoryColumn, NumberColumn
from widemargin.data.schema import Schema
from widemargin.io.archive import LARGEST_JSON
from widemargin.io.graph import Graph, Step
from widemargin.io.table_model import on_features, schema_in

SCHEMA = Schema(
    "kind",
    ("no", "yes"),
    (
        NumberColumn("price", 0.0, 9e4, 3e4, 5e4, 3e4),
        CategoryColumn("colour", ("green", "red")),
        NumberColumn("age", 1.0, 90.0, 20.0, 40.0, 20.0, median=39.0),
    ),
)
WEIGHT = torch.tensor([[1.0, -2.0], [0.5, 3.0], [1.0, 1.0], [0.0, -1.0], [2.0, 0.0]])


def graph(schema: Schema, weight: Tensor = WEIGHT, sizes: Sequence[int | None] = (None, 3), raw: bool = False) -> Graph:
    """The encoding of a schema and then one layer, which may look at the raw rows, too."""
    encoder = schema.encoder()

    def layer(features: Tensor, rows: Tensor, weight: Tensor) -> tuple[Tensor]:
        return (features @ weight + (rows[:, :1] if raw else 0),)

    steps = [
        Step("Encode", lambda rows: (encoder(rows),), ("rows",), ("features",)),
        Step("Layer", layer, ("features", "rows" if raw else "", "weight"), ("logits",)),
    ]
    return Graph({"weight": weight}, steps, "rows", "logits", sizes)


def test_the_part_behind_the_encoding() -> None:
    features = torch.randn(4, 5)
    torch.testing.assert_close(on_features(graph(SCHEMA), SCHEMA)(features), features @ WEIGHT)


def test_rows_that_are_taken_as_they_are() -> None:
    schema = Schema("kind", (0, 1), tuple(NumberColumn(name, 0.0, 1.0, 0.3, 0.0, 1.0) for name in "ab"))
    weight, points = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.rand(3, 2)
    whole = Graph(
        {"weight": weight}, [Step("MatMul", lambda a, b: (a @ b,), ("x", "weight"), ("y",))], "x", "y", (None, 2)
    )
    assert torch.equal(on_features(whole, schema)(points), points @ weight)


def test_a_file_that_does_not_encode_as_its_schema_says() -> None:
    told = SCHEMA.to_dict()
    told["columns"][0]["scale"] = 1.0
    with pytest.raises(ValueError, match="nothing in it encodes rows as the schema in its metadata says"):
        on_features(graph(SCHEMA), Schema.from_dict(told))
    with pytest.raises(ValueError, match="Layer reads 'rows', which nothing before it makes"):
        on_features(graph(SCHEMA, raw=True), SCHEMA)
    with pytest.raises(ValueError, match=r"takes points of shape \[7\], got \[3\]"):
        on_features(graph(SCHEMA, sizes=(None, 7)), SCHEMA)
    with pytest.raises(ValueError, match="batches of any size"):
        on_features(graph(SCHEMA, sizes=(10**9, 3)), SCHEMA)


def test_a_file_that_fails_on_some_rows() -> None:
    """Its dry run is on zeros; missing values come later."""
    look_up = Step("Gather", lambda rows: (torch.zeros(91)[rows[:, 2].long()],), ("rows",), ("found",))
    network = Graph({}, [look_up], "rows", "found", (None, 3))
    with pytest.raises(ValueError, match="its Gather cannot be computed: index"):
        on_features(network, SCHEMA)


def metadata(content: Any) -> dict[str, str]:
    return {"classes": '["no", "yes"]', "schema": content if isinstance(content, str) else json.dumps(content)}


def test_metadata() -> None:
    assert schema_in(metadata(SCHEMA.to_dict())) == SCHEMA
    assert schema_in({}) is None
    assert schema_in({"schema": "of something else"}) is None
    assert schema_in({"classes": "['cat']"}) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("__import__('os').abort()", "must be JSON, got something else: export the run again"),
        ("[" * 200_000, "nested too deeply"),
        ('{"columns": 1}', r"is wrong, it is no schema \(TypeError\)"),
        ({**SCHEMA.to_dict(), "classes": ["no", "no"]}, "is wrong, a schema must have different, finite classes"),
        (" " * (LARGEST_JSON + 1), "must have at most 67,108,864 characters, got 67,108,865"),
    ],
    ids=["code", "deep", "columns", "classes", "large"],
)
def test_wrong_metadata_is_refused(content: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        schema_in(metadata(content))
    assert len(str(refused.value).splitlines()) == 1
