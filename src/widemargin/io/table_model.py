"""Exported models of tables: their schema, read from metadata that anybody may have written, and what is behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch
from torch import Generator, Tensor

from widemargin.data.columns import NumberColumn
from widemargin.data.schema import Schema
from widemargin.data.schema_check import checked_schema
from widemargin.io.archive import LARGEST_JSON
from widemargin.io.graph import Graph

_TRIED = 16
"""Rows on which a file must encode as its schema says."""
_CLOSE = 1e-4


def schema_in(metadata: Mapping[str, str]) -> Schema | None:
    """That of the table; None if nothing says that the file was exported from a run on one."""
    if not {"schema", "classes"} <= metadata.keys():
        return None
    text = metadata["schema"]
    if len(text) > LARGEST_JSON:
        raise ValueError(f"the schema in its metadata must have at most {LARGEST_JSON:,} characters, got {len(text):,}")
    try:
        return checked_schema(json.loads(text))
    except RecursionError:
        raise ValueError("the schema in its metadata is nested too deeply: export the run again") from None
    except json.JSONDecodeError:
        raise ValueError("the schema in its metadata must be JSON, got something else: export the run again") from None
    except ValueError as problem:
        raise ValueError(f"the schema in its metadata is wrong, {problem}: export the run again") from None


def on_features(graph: Graph, schema: Schema) -> Graph:
    """The part of a graph of raw rows that takes encoded ones, as the network of the run did.

    It begins at the first value that is the encoding of the schema, which is compared, not believed.
    """
    if graph.fixed_batch_size is not None:
        raise ValueError("a model of a table must take batches of any size: export the run again")
    rows = _rows(schema)
    with torch.no_grad():
        wanted: Tensor = schema.encoder()(rows)
        for name, value in graph.values(rows):
            if _same(value, wanted):
                return graph.behind(name, (None, wanted.shape[1]))
    raise ValueError("nothing in it encodes rows as the schema in its metadata says: export the run again")


def _same(value: object, wanted: Tensor) -> bool:
    return (
        isinstance(value, Tensor)
        and value.shape == wanted.shape
        and value.dtype == wanted.dtype
        and torch.allclose(value, wanted, rtol=_CLOSE, atol=_CLOSE)
    )


def _rows(schema: Schema) -> Tensor:
    """Rows with all categories in turn, and with missing values where there may be any."""
    drawn = torch.randn(_TRIED, len(schema.columns), generator=Generator().manual_seed(0))
    numbers = torch.arange(_TRIED, dtype=torch.float32)
    for place, column in enumerate(schema.columns):
        if isinstance(column, NumberColumn):
            drawn[:, place] = column.shift + column.scale * drawn[:, place]
        else:
            drawn[:, place] = numbers % max(len(column.values), 1)
    for place in schema.missing:
        # Another half of the rows for each: columns must not be taken for one another.
        drawn[(numbers + place) % 3 == 0, place] = torch.nan
    return drawn
