"""Empirical margins: how far each point is from the nearest place that attacks found to be misclassified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from widemargin.data.dataset import Examples, row_numbers
from widemargin.fast.accelerate import accelerated
from widemargin.measure.accuracy import BATCH_SIZE, iter_batches
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import UNIT, Box, Norm
from widemargin.perturb.bisected_apgd import BisectedAPGD
from widemargin.perturb.exchange import exchange
from widemargin.perturb.frozen import frozen
from widemargin.perturb.lead import before_softmax
from widemargin.perturb.line_search import Nearest, firm
from widemargin.perturb.refine import refine
from widemargin.perturb.rows import EFFICIENT_BATCH, has_few_features, per_row, wrong
from widemargin.perturb.suites import shortest, starts_of
from widemargin.rng import RowRng
from widemargin.shapes import Labels, PerSample, Points
from widemargin.uncertainty.network import Network, check_alone
from widemargin.uncertainty.predictive import is_correct

OnProgress = Callable[[int], None]
"""Called after every batch with how many points are done."""
NO_ATTACK = -1
_WORTH_POLISHING = 1.1


@dataclass(frozen=True, eq=False)
class Distances:
    """The empirical margin: of each point an upper bound, attained at its place."""

    distance: PerSample
    """0 for points that are misclassified where they are, infinite where no attack found a place."""
    places: Points
    """Where the network is wrong; the point itself if it is misclassified or nothing was found."""
    by: Labels
    """Which of the attacks found the place; NO_ATTACK where none did or none was needed."""
    norm: Norm
    box: Box
    attacks: tuple[Attack, ...]
    seed: int

    @property
    def n(self) -> int:
        return len(self.distance)

    @property
    def misclassified(self) -> float:
        """The share of points that need not be moved at all."""
        return int((self.distance == 0).sum()) / self.n

    @property
    def unbroken(self) -> float:
        """The share of points for which no attack found anything."""
        return int((self.distance == torch.inf).sum()) / self.n

    @property
    def min(self) -> float:
        return float(self.distance.min())

    @property
    def mean(self) -> float:
        """Over all points: infinite as soon as one is unbroken."""
        return float(self.distance.double().mean())

    @property
    def median(self) -> float:
        return self.quantile(0.5)

    @property
    def quantiles(self) -> dict[float, float]:
        return {share: self.quantile(share) for share in (0.05, 0.25, 0.5, 0.75, 0.95)}

    def quantile(self, share: float) -> float:
        """The distance of one of the points, so that infinite ones do no harm."""
        return float(np.quantile(self.distance.double().cpu().numpy(), share, method="inverted_cdf"))

    @property
    def of_right(self) -> PerSample:
        """The distances of those points that are classified right."""
        return self.distance[self.distance > 0]

    def accuracy(self, radius: float) -> float:
        """The share of points that no known place within the radius breaks."""
        return int(((self.distance > radius) & (self.distance > 0)).sum()) / self.n

    @property
    def found_by(self) -> dict[str, int]:
        """How often each attack, by its repr, came nearest (the first of those that came equally near)."""
        return {repr(attack): int((self.by == i).sum()) for i, attack in enumerate(self.attacks)}


def distances(
    network: Network,
    examples: Examples,
    norm: Norm,
    box: Box = UNIT,
    attacks: Sequence[Attack] | None = None,
    seed: int = 0,
    rows: int = BATCH_SIZE,
    on_progress: OnProgress | None = None,
) -> Distances:
    """The least over all attacks, each brought to the boundary and along it to where that is nearest.

    In l1 the nearest place of a table's row is then tried with other features (`perturb.exchange`).

    Every place was seen to be wrong in a forward pass.  What is drawn for an example follows from the seed and its
    row number, so the answer does not depend on how many `rows` are computed at once.  The network stays as it is.
    """
    check_alone(network)
    with frozen(network):
        made = _default(network, examples, norm, box, rows) if attacks is None else tuple(attacks)
        if not made:
            raise ValueError("distances need at least one attack, got none")
        quick = accelerated(network, examples[torch.arange(min(rows, len(examples)))][0])
        batches = []
        for numbers, inputs, labels in iter_batches(examples, rows):
            box.check(inputs)
            at = row_numbers(examples, numbers)
            batches.append(_nearest(network, quick, inputs, labels, at, norm, box, made, seed))
            if on_progress is not None:
                on_progress(int(numbers[-1]) + 1)
    distance, places, by = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return Distances(distance, places, by, norm, box, made, seed)


def _default(network: Network, examples: Examples, norm: Norm, box: Box, rows: int) -> tuple[Attack, ...]:
    inputs, _ = examples[torch.arange(1)]
    return shortest(norm, box, class_count(network, examples), rows, starts_of(inputs))


def class_count(network: Network, examples: Examples) -> int:
    inputs, _ = examples[torch.arange(1)]
    with torch.no_grad():
        return int(network(inputs).shape[-1])


def _nearest(
    model: Network,
    quick: Network,
    inputs: Points,
    labels: Labels,
    numbers: Tensor,
    norm: Norm,
    box: Box,
    attacks: Sequence[Attack],
    seed: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attacks see the accelerated copy; the network itself decides which places are wrong."""
    with torch.no_grad():
        right = is_correct(model(inputs), labels)
    by = torch.full_like(labels, NO_ATTACK)
    distance = torch.zeros(len(inputs), dtype=inputs.dtype, device=inputs.device)
    places = inputs.clone()
    left = right.nonzero()[:, 0]
    if len(left) == 0:
        return distance, places, by
    seen, their_labels, first = Nearest(norm(0.0, box), inputs[left]), labels[left], by[left]
    rng = RowRng(seed, numbers.to(inputs.device)[left])
    alone = [i for i, attack in enumerate(attacks) if not isinstance(attack, BisectedAPGD)]
    reached = [attacks[i](quick, seen.inputs, their_labels, rng).points for i in alone]
    first = _seen(model, seen, their_labels, reached, alone, first)
    for i, attack in enumerate(attacks):
        if isinstance(attack, BisectedAPGD):
            # It need not begin from nothing.
            first = _seen(model, seen, their_labels, [attack.nearer_than(seen, quick, their_labels, rng)], [i], first)
    if seen.ball.sparse and has_few_features(inputs):
        # Nearer places count as found by the attack whose place they were reached from.
        exchanged = exchange(before_softmax(quick), seen.inputs, their_labels, seen.places, seen.ball)
        _see(model, seen, their_labels, firm(model, seen.inputs, their_labels, exchanged, box))
    distance[left], places[left], by[left] = seen.distance, seen.places, first
    return distance, places, by


def _seen(
    model: Network, seen: Nearest, labels: Labels, places: list[Points], attacks: list[int], first: Labels
) -> Labels:
    """Who came nearest, once the places that these attacks found are on the boundary."""
    for attack, reached in zip(attacks, _on_the_boundary(model, seen, labels, places), strict=True):
        first = torch.where(_see(model, seen, labels, reached), attack, first)
    return first


def _see(model: Network, seen: Nearest, labels: Labels, places: Points) -> Tensor:
    with torch.no_grad():
        return seen.see(places, wrong(model(places), labels))


def _on_the_boundary(model: Network, seen: Nearest, labels: Labels, places: list[Points]) -> list[Points]:
    """Each attack's places brought to the boundary and along it, all in one batch: small ones cost as much.

    Along the boundary a way becomes a few per cent shorter: one that is much too long is not worth the work.
    """
    if not places:
        return []
    ball, reached = seen.ball, torch.cat(places)
    row = torch.arange(len(labels), device=labels.device).repeat(len(places))
    near = ball.norm(reached - seen.inputs[row])
    near = torch.where(near > 0, near, torch.inf)
    best = near.view(len(places), -1).amin(0).minimum(seen.distance)
    worth = (near < _WORTH_POLISHING * best[row]).nonzero()[:, 0]
    for some in worth.split(max(len(labels), EFFICIENT_BATCH)) if len(worth) else ():
        start, their_labels = seen.inputs[row[some]], labels[row[some]]
        way = refine(before_softmax(model), start, their_labels, reached[some], ball)
        # In another batch a place may be right by rounding alone, and is not lost for that.
        lost = per_row(ball.norm(way - start) == 0, way)
        reached[some] = firm(model, start, their_labels, torch.where(lost, reached[some], way), ball.box)
    return list(reached.chunk(len(places)))
