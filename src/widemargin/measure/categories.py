"""Measures of rows whose categories may change: of all that a row may become, the worst counts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from widemargin.data.dataset import Examples, Subset
from widemargin.measure.accuracy import iter_batches
from widemargin.measure.certified import certified_radius
from widemargin.measure.distance import Distances, distances
from widemargin.perturb.balls import Ball, Box, Norm
from widemargin.perturb.categories import ENUMERATED, CategoryChanges, likeliest
from widemargin.perturb.frozen import frozen
from widemargin.perturb.rows import wrong
from widemargin.shapes import PerSample
from widemargin.uncertainty.network import Network

_ROWS = 100


@dataclass(frozen=True, eq=False)
class Alternatives:
    """What examples may become, one after the other."""

    examples: Subset
    row: Int[Tensor, " A"]
    """Which of the examples it was, rising."""

    def lowest(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Of values of all, the least of each example, and which has it: the first of equals."""
        order = torch.from_numpy(values.cpu().double().numpy().argsort(kind="stable"))
        order = order[self.row[order].argsort(stable=True)]
        first = torch.cat([torch.ones(1, dtype=torch.bool), self.row[order][1:] != self.row[order][:-1]])
        at = order[first]
        return values[at.to(values.device)], at


def alternatives(network: Network, examples: Examples, changes: CategoryChanges) -> Alternatives:
    """All that rows may become, or of many those nearest to a wrong answer; the row itself comes first.

    A row that is misclassified stands for itself, and one that some change alone makes so for that change: there is
    nothing worse.
    """
    parts, rows = [], []
    with frozen(network), torch.no_grad():
        for numbers, inputs, labels in iter_batches(examples, _ROWS):
            right = ~wrong(network(inputs), labels)
            best = likeliest(changes, network, inputs, labels)
            strongest = changes.with_codes(inputs, best.codes[:, 0])
            alone = right & wrong(network(strongest), labels)
            taken = best.possible & (right & ~alone)[:, None]
            # The row itself is taken apart, so that it comes first.
            taken &= ~(best.codes == changes.codes(inputs)[:, None]).all(-1)
            row, way = taken.nonzero(as_tuple=True)
            first = torch.where(alone[:, None], strongest, inputs)
            points = torch.cat([first, changes.with_codes(inputs[row], best.codes[row, way])])
            of = torch.cat([torch.arange(len(inputs)), row.cpu()])
            order = of.argsort(stable=True)
            parts.append(points[order.to(points.device)])
            rows.append(numbers[of[order]])
    row = torch.cat(rows)
    whole, at = (examples.of, examples.rows[row]) if isinstance(examples, Subset) else (examples, row)
    return Alternatives(Subset(whole, at, torch.cat(parts)), row)


def changed_distances(
    network: Network, examples: Examples, norm: Norm, box: Box, changes: CategoryChanges, seed: int = 0
) -> Distances:
    """`distances` over all that rows may become: how far the numbers must go, which is 0 where a change is enough."""
    changes.check_box(box)
    of = alternatives(network, examples, changes)
    known = distances(network, of.examples, norm, box, seed=seed)
    distance, at = of.lowest(known.distance)
    at = at.to(known.places.device)
    return replace(known, distance=distance, places=known.places[at], by=known.by[at])


def changed_certified_radius(network: Network, examples: Examples, ball: Ball, changes: CategoryChanges) -> PerSample:
    """The radius that is proven whatever a row's categories become: each is proven, and the least counts."""
    changes.check_box(ball.box)
    if changes.count > ENUMERATED:
        raise ValueError(uncertified_changes(changes))
    of = alternatives(network, examples, changes)
    return of.lowest(certified_radius(network, of.examples, ball))[0]


def uncertified_changes(changes: CategoryChanges) -> str:
    return (
        f"a certificate is a proof for each of at most {ENUMERATED} rows that a row may become by changes of category, "
        f"got {changes.count:,}: name fewer columns"
    )
