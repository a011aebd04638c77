"""Changes of category: a row's one-hot features as another category has them, apart from the ball of its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from widemargin.data.schema import Schema
from widemargin.parts import part
from widemargin.perturb.attack import Attack, Classifier, Perturbed, check_counts
from widemargin.perturb.balls import Box
from widemargin.perturb.boundary_distance import WithBoundaryDistance
from widemargin.perturb.frozen import frozen
from widemargin.perturb.gradient import gradient_or_zero
from widemargin.perturb.losses import margin
from widemargin.perturb.objectives import Objective, Pair, perturbed_log_entropy
from widemargin.perturb.rows import wrong
from widemargin.perturb.search import Search
from widemargin.rng import AnyRng
from widemargin.shapes import Labels, MemberLogits, PerSample, Points
from widemargin.uncertainty.network import Network

Codes = Int[Tensor, "B columns"]
"""The number of each column's category, from 0 on; MISSING where a row has none."""
MISSING = -1
ENUMERATED = 32
"""Of a row that may become up to so many, all are attacked and certified."""
LIKELIEST = 8
"""Of more than that, the row itself and so many of the others are attacked: those nearest to a wrong answer."""
_EVALUATED = 1_024
"""Of more than that not all are looked at: one change is made after the other, each time the best."""
_ROWS_AT_ONCE = 8_192


@part
@dataclass(frozen=True)
class CategoryChanges:
    """Columns of categories that a perturbation may change, each to another of its categories.

    It is no part of the ball: how many columns change is counted apart from how far the numbers go.  A missing category
    stays missing.
    """

    columns: tuple[tuple[int, ...], ...]
    """For each column the places of its features, of which a row has 1 for its category and 0 for all others."""
    most: int = 1
    """How many columns of a row may change at once."""

    def __post_init__(self) -> None:
        places = [place for column in self.columns for place in column]
        if not places or min(map(len, self.columns)) == 0 or len(set(places)) < len(places) or min(places) < 0:
            raise ValueError(f"CategoryChanges.columns must be different places, at least one each, got {self.columns}")
        if not isinstance(self.most, int) or self.most < 1:
            raise ValueError(f"CategoryChanges.most must be a whole number of at least 1, got {self.most}")

    @property
    def count(self) -> int:
        """How many rows one row may become, itself among them."""
        by_changes = [1] + [0] * min(self.most, len(self.columns))
        for column in self.columns:
            for changes in range(len(by_changes) - 1, 0, -1):
                by_changes[changes] += by_changes[changes - 1] * (len(column) - 1)
        return sum(by_changes)

    @property
    def attacked(self) -> int:
        """How many of them are attacked."""
        return self.count if self.count <= ENUMERATED else 1 + LIKELIEST

    def check_box(self, box: Box) -> None:
        """Half a category is no row."""
        free = sorted({place for column in self.columns for place in column} - set(box.fixed))
        if free:
            raise ValueError(
                f"the box must hold the features of categories fixed, got {free[0]} free: give box.holding(places), or "
                "the dataset's own box"
            )

    def codes(self, points: Points) -> Codes:
        """The categories of rows, whose features must be 1 for one of each column and 0 for the others."""
        if points.ndim != 2:
            raise ValueError(f"categories are those of a table's rows, got points of shape {list(points.shape[1:])}")
        if points.shape[1] <= max(place for column in self.columns for place in column):
            raise ValueError(f"categories are at places up to {max(map(max, self.columns))}, got {points.shape[1]}")
        codes = []
        for column in self.columns:
            features = points[:, list(column)]
            ones = (features == 1).sum(1)
            if bool((((features != 0) & (features != 1)).any(1) | (ones > 1)).any()):
                raise ValueError(
                    f"the features {', '.join(map(str, column))} must be 1 for a row's category and 0 for the others, "
                    "got rows in which they are not"
                )
            codes.append(torch.where(ones == 1, features.argmax(1), MISSING))
        return torch.stack(codes, 1)

    def with_codes(self, points: Points, codes: Codes) -> Points:
        """The same rows with these categories."""
        changed = points.clone()
        for column, wanted in zip(self.columns, codes.unbind(1), strict=True):
            numbers = torch.arange(len(column), device=points.device)
            changed[:, list(column)] = (wanted[:, None] == numbers).to(points)
        return changed

    @cached_property
    def shifts(self) -> Int[Tensor, "ways columns"]:
        """All that may become of a row, by how many categories each column goes on in turn; nothing comes first."""
        return torch.tensor(list(self._shifts(0, min(self.most, len(self.columns)))))

    @cached_property
    def single_shifts(self) -> Int[Tensor, "ways columns"]:
        """The changes of one column."""
        return torch.tensor(list(self._shifts(1, 1))).view(-1, len(self.columns))

    @cached_property
    def sizes(self) -> Int[Tensor, " columns"]:
        return torch.tensor([len(column) for column in self.columns])

    def _shifts(self, least: int, most: int) -> Iterator[list[int]]:
        for changes in range(least, most + 1):
            for chosen in combinations(range(len(self.columns)), changes):
                for steps in product(*(range(1, len(self.columns[column])) for column in chosen)):
                    by_column = dict(zip(chosen, steps, strict=True))
                    yield [by_column.get(column, 0) for column in range(len(self.columns))]


def changes_of(schema: Schema | None) -> CategoryChanges | None:
    """Those that a table was read with; None if no category may change."""
    if schema is None or not schema.category_changes:
        return None
    return CategoryChanges(tuple(map(schema.places, schema.perturbed_columns)), schema.category_changes)


@dataclass(frozen=True, eq=False)
class Ranked:
    """What rows may become, the highest score first."""

    codes: Int[Tensor, "B ways columns"]
    scores: Float[Tensor, "B ways"]
    """-inf for what a row cannot become, since its category is missing."""

    @property
    def possible(self) -> Bool[Tensor, "B ways"]:
        return self.scores > -torch.inf


Score = Callable[[Points, Tensor], PerSample]
"""Of points, and the rows of the batch that they come from: what is to be high."""


def ranked(changes: CategoryChanges, points: Points, score: Score, keep: int, evaluated: int = _EVALUATED) -> Ranked:
    """The best by their scores, exactly while there are few; of very many one change is made after the other."""
    codes = changes.codes(points)
    if changes.count <= evaluated:
        options, possible = _shifted(changes, codes, changes.shifts)
        return _best(_scored(changes, points, options, possible, score), keep)
    now = codes
    seen = [_scored(changes, points, codes[:, None], torch.ones_like(codes[:, :1], dtype=torch.bool), score)]
    for _ in range(min(changes.most, len(changes.columns))):
        round_ = _scored(changes, points, *_next(changes, codes, now), score)
        seen.append(round_)
        first = _best(round_, 1)
        now = torch.where(first.possible, first.codes[:, 0], now)
    return _best(Ranked(torch.cat([one.codes for one in seen], 1), torch.cat([one.scores for one in seen], 1)), keep)


def _next(changes: CategoryChanges, codes: Codes, now: Codes) -> tuple[Tensor, Tensor]:
    """What a change of one more column makes of rows that are changed already."""
    shifts = changes.single_shifts
    options, possible = _shifted(changes, now, shifts)
    again = ((shifts.to(now.device) != 0)[None] & (now != codes)[:, None]).any(-1)
    return options, possible & ~again


def _shifted(changes: CategoryChanges, codes: Codes, shifts: Tensor) -> tuple[Tensor, Tensor]:
    shifts, known = shifts.to(codes.device), codes[:, None] != MISSING
    options = torch.where(known, (codes[:, None] + shifts[None]) % changes.sizes.to(codes.device), MISSING)
    return options, (known | (shifts == 0)[None]).all(-1)


def _scored(changes: CategoryChanges, points: Points, options: Tensor, possible: Tensor, score: Score) -> Ranked:
    rows, ways = possible.nonzero(as_tuple=True)
    scores = torch.full(possible.shape, -torch.inf, dtype=points.dtype, device=points.device)
    for some in torch.arange(len(rows), device=points.device).split(_ROWS_AT_ONCE):
        row, way = rows[some], ways[some]
        values = score(changes.with_codes(points[row], options[row, way]), row)
        # What is not a number is as wrong as can be; -inf means that there is no such row.
        finite = torch.finfo(points.dtype)
        scores[row, way] = values.detach().to(scores).nan_to_num(finite.max, finite.max, finite.min)
    return Ranked(options, scores)


def _best(of: Ranked, keep: int) -> Ranked:
    # Stable: what changes less comes first among equals.
    order = of.scores.argsort(dim=1, descending=True, stable=True)[:, :keep]
    return Ranked(of.codes.take_along_dim(order[..., None], 1), of.scores.take_along_dim(order, 1))


def likeliest(
    changes: CategoryChanges, classify: Classifier, inputs: Points, labels: Labels, keep: int | None = None
) -> Ranked:
    """What rows may become, nearest to a wrong answer first; few enough to be attacked one by one.

    The row itself is always among them.
    """

    def lead(points: Points, rows: Tensor) -> PerSample:
        with torch.no_grad():
            return -margin(classify(points), labels[rows])

    best = ranked(changes, inputs, lead, changes.attacked if keep is None else keep)
    unchanged = changes.codes(inputs)
    there = (best.codes == unchanged[:, None]).all(-1) & best.possible
    lost = (~there.any(1)).nonzero()[:, 0]
    if len(lost):
        # Where it is not among the best it takes the place of the last.
        best.codes[lost, -1], best.scores[lost, -1] = unchanged[lost], lead(inputs[lost], lost)
    return best


@dataclass(frozen=True)
class FromChangedCategories:
    """An attack that begins from whatever a row's categories may become, until it finds a wrong answer.

    Its place has the categories of a row, and is as far from that as the attack goes.  Beyond `ENUMERATED` it begins
    from the `LIKELIEST` only.
    """

    attack: Attack
    changes: CategoryChanges

    @property
    def name(self) -> str:
        return self.attack.name

    def __call__(self, model: Network, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        best, draws = likeliest(self.changes, model, inputs, labels), rng.by_row(len(inputs))
        points, distance = inputs.clone(), torch.zeros_like(inputs[:, 0])
        left = torch.arange(len(inputs), device=inputs.device)
        for way in range(best.codes.shape[1]):
            row = left[best.possible[left, way]]
            if len(row) == 0:
                continue
            start = self.changes.with_codes(inputs[row], best.codes[row, way])
            reached, far = self._from(model, start, labels[row], draws.at(row))
            with torch.no_grad():
                broken = wrong(model(reached), labels[row])
            points[row[broken]], distance[row[broken]] = reached[broken], far[broken]
            left = left[~torch.isin(left, row[broken])]
        return Perturbed(points, points - inputs, distance)

    def _from(self, model: Network, start: Points, labels: Labels, rng: AnyRng) -> tuple[Points, PerSample]:
        """An attack is asked about rows that are classified right."""
        reached, far = start.clone(), torch.zeros_like(start[:, 0])
        with torch.no_grad():
            right = (~wrong(model(start), labels)).nonzero()[:, 0]
        if len(right):
            moved = self.attack(model, start[right], labels[right], rng.by_row(len(labels)).at(right))
            reached[right], far[right] = moved.points.detach(), moved.distance.detach()
        return reached, far


@part
@dataclass(frozen=True)
class WithCategoryChanges:
    """A training search that first changes categories, to those where its objective is highest, and walks from there.

    One change after the other: the gradient tells which few to evaluate, and the best of them is made if it is better
    than none.  For uncertainty no label is needed.
    """

    search: Search | WithBoundaryDistance
    changes: CategoryChanges
    tried: int = 8
    """How many changes are evaluated each time, those that promise most by the gradient."""

    def __post_init__(self) -> None:
        check_counts(self, tried=self.tried)
        self.changes.check_box(self.walk.ball.box)

    @property
    def walk(self) -> Search:
        return self.search.search if isinstance(self.search, WithBoundaryDistance) else self.search

    @property
    def takes_unlabelled(self) -> bool:
        return self.search.takes_unlabelled

    def __call__(self, network: Network, inputs: Tensor, labels: Tensor, rng: AnyRng) -> Perturbed:
        with frozen(network), torch.no_grad():
            changed = self._changed(network, inputs, labels)
        if isinstance(self.search, Search):
            moved = self.search(network, changed, labels, rng, clean_at=inputs)
        else:
            moved = self.search(network, changed, labels, rng)
        return moved._replace(delta=moved.delta + (changed - inputs))

    def _changed(self, network: Network, inputs: Points, labels: Labels) -> Points:
        changes = self.changes
        hill = _Hill(self.walk.objective, network, labels, network.logits(_encoded(network, inputs)))
        codes = now = changes.codes(inputs)
        shown = torch.arange(len(inputs), device=inputs.device)
        best = hill.value(inputs, shown)
        for _ in range(min(changes.most, len(changes.columns))):
            options, possible = _next(changes, codes, now)
            rise = _rise(changes, hill.gradient(changes.with_codes(inputs, now)), now, options)
            promised = torch.where(possible, rise, -torch.inf)
            order = promised.argsort(dim=1, descending=True, stable=True)[:, : self.tried]
            tried = options.take_along_dim(order[..., None], 1)
            # Every row in as many forms, in turn: each replica keeps its block of the batch.
            rows = shown.repeat_interleave(tried.shape[1])
            values = hill.value(changes.with_codes(inputs[rows], tried.flatten(0, 1)), rows).view(tried.shape[:2])
            values = torch.where(possible.take_along_dim(order, 1), values, -torch.inf)
            highest, way = values.max(1)
            better = highest > best
            now = torch.where(better[:, None], tried[shown, way], now)
            best = torch.where(better, highest, best)
        return changes.with_codes(inputs, now)


def _encoded(network: Network, points: Points) -> Points:
    center = network.encode(points)
    if center.shape != points.shape:
        raise ValueError("categories are changed in rows, not in latent space: perturb the input")
    return center


@dataclass(frozen=True, eq=False)
class _Hill:
    """What is climbed, on one batch."""

    objective: Objective
    network: Network
    labels: Labels
    clean: MemberLogits

    def value(self, points: Points, rows: Tensor) -> PerSample:
        """Of points, and the rows of the batch that they come from."""
        logits = self.network.logits(self.network.encode(points))
        return self.objective(Pair(self.labels[rows], lambda: self.clean[:, rows], lambda: logits))

    def gradient(self, points: Points) -> Points:
        flat = all(term.flat_at_center for _, term in self.objective.terms if term.moves)
        # Of what is flat, which promises nothing of any change, that of uncertainty stands for it.
        climbed = perturbed_log_entropy if flat else self.objective
        with torch.enable_grad():
            points = points.detach().requires_grad_()
            logits = self.network.logits(self.network.encode(points))
            return gradient_or_zero(climbed(Pair(self.labels, lambda: self.clean, lambda: logits)), points)


def _rise(changes: CategoryChanges, uphill: Points, now: Codes, options: Tensor) -> Float[Tensor, "B ways"]:
    """By how much the objective would rise with each change if it were linear."""
    rise = torch.zeros(options.shape[:2], dtype=uphill.dtype, device=uphill.device)
    for number, column in enumerate(changes.columns):
        slopes = uphill[:, list(column)]
        # Of a missing category nothing is asked.
        there, then = (codes.clamp_min(0) for codes in (now[:, number, None], options[..., number]))
        rise += slopes.gather(1, then) - slopes.gather(1, there)
    return rise
