"""Audits of rows whose categories may change: every alternative is measured, and the worst of each row is kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from widemargin.auditing.result import Array, CategoryNames
from widemargin.data.dataset import Dataset, Subset
from widemargin.measure.categories import alternatives
from widemargin.measure.distance import NO_ATTACK
from widemargin.perturb.categories import CategoryChanges
from widemargin.uncertainty.network import Network, in_eval_mode


def names_of(changes: CategoryChanges | None, dataset: Dataset) -> CategoryNames:
    """What columns and their categories are called: by the schema, or by the places of their features."""
    if changes is None:
        return ()
    schema, names = dataset.schema, []
    known = {} if schema is None else {schema.places(column.name): column for _, column in schema.categories}
    for places in changes.columns:
        column = known.get(places)
        unnamed = (f"features {places[0]} to {places[-1]}", tuple(map(str, places)))
        names.append(unnamed if column is None else (column.name, column.values))
    return tuple(names)


def worst_of_changes(
    network: Network,
    examples: Subset,
    changes: CategoryChanges,
    measure: Callable[[Subset], dict[str, Array]],
    number: int,
) -> dict[str, Array]:
    """What is saved of these points; `number` is that of CHANGE among the attacks.

    `changed_from` and `changed_to` are the categories of the point and of its place, in the order of the columns.
    """
    of = alternatives(network, examples, changes)
    known = measure(of.examples)
    inputs, labels = examples[torch.arange(len(examples))]
    with torch.no_grad(), in_eval_mode(network):
        answers = network(inputs).argmax(-1)
    row = of.row.numpy()
    # The first is the row itself, which counts where a change makes nothing worse.
    broken = _first_of_each(row, known["breaks"], known["margin"])
    nearest = _first_of_each(row, known["way"])
    by, places = known["by"][broken], known["place"][nearest]
    alone = (answers == labels).cpu().numpy() & (known["breaks"][broken] == 0) & (by == NO_ATTACK)
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    return {
        "row": examples.rows.numpy(),
        "label": labels.cpu().numpy(),
        "answer": answers.cpu().numpy(),
        "breaks": known["breaks"][broken],
        "by": np.where(alone, number, by),
        "margin": np.minimum.reduceat(known["margin"], starts),
        "place": places,
        "way": known["way"][nearest],
        # NaN, if one of them has no certificate, stays.
        "certified": np.minimum.reduceat(known["certified"], starts),
        "tried": np.maximum.reduceat(known["tried"], starts),
        "changed_from": changes.codes(inputs).cpu().numpy(),
        "changed_to": changes.codes(torch.from_numpy(places)).numpy(),
    }


def _first_of_each(row: Array, *values: Array) -> Array:
    """The place of each row's least, by the first of the values and for equals by the next."""
    order = np.lexsort((*reversed(values), row))
    return np.asarray(order[np.flatnonzero(np.diff(row[order], prepend=-1))])
