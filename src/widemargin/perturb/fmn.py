"""FMN: minimum-norm attack in any norm, by gradient steps in a ball whose radius follows the boundary."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from widemargin.perturb.attack import Classifier, Perturbed, perturbed
from widemargin.perturb.balls import OPEN, UNIT, Ball, Box, Norm
from widemargin.perturb.ddn import check_steps, direction
from widemargin.perturb.gradient import gradient
from widemargin.perturb.lead import Lead, before_softmax
from widemargin.perturb.line_search import Nearest, fade, farthest
from widemargin.perturb.rows import among, at_once, has_few_features, per_row, wrong
from widemargin.perturb.starts import corners, from_afar, linear_boundary
from widemargin.rng import AnyRng, RowRng
from widemargin.shapes import Labels, PerSample, Points

_MOST_CANDIDATES = 20
# Small batches cost as much as larger ones: so many rows of several targets are moved together, from every start.
_ROWS_SIDE_BY_SIDE = 256
# What steps and changes of the radius begin with as fractions of the radius, and by how much they become smaller.
_LONG, _SHORT, _SHORTEST, _LESS = 1.0, 0.3, 0.1, 0.01
# With several starts: which share of the steps each of the two descents has.
_PART = 0.6
# From which share of the first descent on the starts of a point share a radius, and how far inside the nearest place.
_TOGETHER, _INSIDE = 0.5, 0.995
# How many starts towards each class descend a second time, and in a sparse norm: how many, and from how many corners.
_AGAIN, _AGAIN_SPARSE, _CORNERS = 8, 4, 8
# Places nearer to each other than this share of their distance count as of one hollow.
_APART = 0.3


@dataclass(frozen=True)
class FMN:
    """Fast minimum norm (Pintor et al. 2021, Alg. 1).

    Three departures.  It starts where the boundary would be if the classifier were linear at the point.  Steps are
    shares of the radius, and the radius grows even before anything is found: so it needs no scale and no box.
    With several starts, the others are where the boundary would be if the classifier were everywhere as it is at some
    place farther off: starts drawn near the first all end in the same hollow.  Every second one takes shorter steps.
    In time no start of a point may be farther away than the nearest place that any of them found: in the hollow of its
    own it could only become the second, and so squeezed it goes on to another one.
    The best few of each class, of different hollows if there are any, descend once more from the nearest places that
    they found, with yet shorter steps, and in a sparse norm some from corners of the ball that is left.
    """

    norm: Norm
    box: Box = UNIT
    steps: int = 100
    gamma: float = 0.05
    """By which share the radius shrinks or grows at first."""
    targets: int = 0
    """0: towards whichever class leads.  Else once towards each of so many classes, by their distance if the classifier
    were linear at the point."""
    starts: int = 1
    """From how many places towards each class."""

    def __post_init__(self) -> None:
        check_steps("FMN", self.steps, self.gamma)
        if self.targets < 0:
            raise ValueError(f"FMN.targets must be a whole number of at least 0, got {self.targets}")
        if self.starts < 1:
            raise ValueError(f"FMN.starts must be a whole number of at least 1, got {self.starts}")

    def __repr__(self) -> str:
        numbers = f"steps={self.steps}, gamma={self.gamma}, targets={self.targets}, starts={self.starts}"
        return f"FMN(norm={self.norm.__name__}, box={self.box!r}, {numbers})"

    @property
    def name(self) -> str:
        return "FMN-T" if self.targets else "FMN"

    def __call__(self, model: Classifier, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        classify, ball, draws = before_softmax(model), self.norm(0.0, self.box), rng.by_row(len(inputs))
        seen, everyone = Nearest(ball, inputs), torch.arange(len(inputs), device=inputs.device)
        # Towards itself: towards whichever class leads.
        rivals = labels[:, None]
        if self.targets:
            rivals = nearest_classes(classify, inputs, labels, ball)[:, : self.targets]
        for some in rivals.split(at_once(len(inputs), rivals.shape[1], _ROWS_SIDE_BY_SIDE), dim=1):
            row, rival = everyone.repeat(some.shape[1]), some.T.reshape(-1)
            begun = self._begun(classify, inputs[row], labels[row], rival, draws.at(row))
            if self.starts == 1:
                end = self._descended(classify, begun, 1.0)
            else:
                first = self._descended(classify, begun, _PART, _TOGETHER)
                end = self._descended(classify, self._begun_again(classify, first), _PART, 0.0)
            for which in torch.arange(len(end.labels), device=row.device).split(len(inputs)):
                seen.see(end.places[which], end.distance[which] < torch.inf)
        return perturbed(ball, inputs, seen.places)

    def _begun(self, classify: Classifier, inputs: Points, labels: Labels, rivals: Labels, rng: RowRng) -> _Descent:
        """Where the boundary of the linear model is, then the other starts one after the other."""
        ball, lead = self.norm(0.0, self.box), Lead.of(labels, rivals)
        here = torch.zeros_like(inputs)
        delta = linear_boundary(classify, inputs, lead, ball, here, ball.norm(here))
        distance = ball.norm(delta)
        if self.starts == 1:
            return _Descent.at(ball, inputs, labels, rivals, rng, delta, torch.full_like(distance, _LONG))
        row = torch.arange(len(inputs), device=inputs.device).repeat(self.starts)
        start = torch.arange(self.starts, device=inputs.device).repeat_interleave(len(inputs))
        # Starts of one stream would all go the same way wherever the classifier is flat.
        draws = rng.at(row).apart(start)
        drawn = draws.of("elsewhere").normal(*inputs.shape[1:]).to(inputs)
        delta = from_afar(classify, inputs[row], lead.at(row), ball, drawn, distance)
        share = torch.where(start % 2 == 0, _LONG, _SHORT).to(inputs)
        begun = _Descent.at(ball, inputs[row], labels[row], rivals[row], draws, delta, share)
        return replace(begun, starts=self.starts)

    def _begun_again(self, classify: Classifier, first: _Descent) -> _Descent:
        """From the nearest places towards whichever class leads."""
        ball = self.norm(0.0, self.box)
        in_corners = ball.sparse and has_few_features(first.inputs)
        kept = first.hollows(ball, min(self.starts, _AGAIN_SPARSE if in_corners else _AGAIN))
        # The points themselves where nothing was found.
        delta = [(first.places - first.inputs)[kept]]
        share = [torch.full_like(first.share[kept], _SHORTEST)]
        if in_corners:
            points = len(first.labels) // self.starts
            one, nearest = among(first, torch.arange(points, device=kept.device)), first.nearest[:points]
            # Where nothing was found, what the first start has as a radius.
            radius = torch.where(nearest < torch.inf, nearest, one.radius)
            lead, count = Lead.of(one.labels, one.rivals), min(self.starts, _CORNERS)
            delta.append(corners(classify, one.inputs, lead, ball, radius, count))
            share.append(torch.full_like(delta[1][:, 0], _SHORT))
            kept = torch.cat([kept, torch.arange(len(delta[1]), device=kept.device)])
        again = among(first, kept)
        begun, starts = torch.cat(delta), len(kept) * self.starts // len(first.labels)
        return replace(
            again, rivals=again.labels, delta=begun, radius=ball.norm(begun), share=torch.cat(share), starts=starts
        )

    def _descended(self, classify: Classifier, now: _Descent, part: float, together: float = 1.0) -> _Descent:
        """By steps that begin with a fraction of the radius; from the share `together` of them on a shared one."""
        ball, unit = self.norm(0.0, self.box), self.norm(1.0, OPEN)
        # A step of fraction 1 crosses the ball in any norm.
        length = unit.l2_reach(now.inputs)
        lead, clamp = Lead.of(now.labels, now.rivals), self.box.clamp_around(now.inputs)
        steps = max(1, round(part * self.steps))
        for step in range(steps):
            done = step / steps
            places = now.inputs + now.delta
            answers, heights, slopes = lead.slope(classify, places)
            slopes, across = self.box.free(slopes), wrong(answers, now.labels)
            distance = now.see(ball, places, across)
            gamma = now.share * fade(self.gamma, 0.001, done)
            estimate = distance + heights.abs() / ball.dual_norm(slopes)
            estimate = torch.where((now.distance < torch.inf) | ~estimate.isfinite(), 0.0, estimate)
            radius = torch.where(across, now.radius * (1 - gamma), (now.radius * (1 + gamma)).maximum(estimate))
            now.radius = torch.where(radius > 0, radius, 1.0).minimum(now.most)
            if done >= together:
                now.radius = now.radius.minimum(_INSIDE * now.nearest)
            uphill = self.box.free(direction(self.box.inward(slopes, places), now.rng, step))
            scale = per_row(now.radius, now.delta)
            stride = per_row(now.share * fade(length, length * _LESS, done), now.delta)
            delta = unit.project(now.delta / scale + stride * uphill, now.inputs) * scale
            now.delta = clamp(delta)
        return now


@dataclass(eq=False)
class _Descent:
    """Of every row, where it is and the nearest wrong place it has seen; one start after the other."""

    inputs: Points
    labels: Labels
    rivals: Labels
    rng: RowRng
    delta: Points
    radius: PerSample
    share: PerSample
    """Of the radius: the first step."""
    most: PerSample
    """The largest radius there is."""
    places: Points
    distance: PerSample
    """Infinite where nothing was found yet."""
    starts: int = 1
    """Of every point, towards the same class."""

    @staticmethod
    def at(
        ball: Ball, inputs: Points, labels: Labels, rivals: Labels, rng: RowRng, delta: Points, share: PerSample
    ) -> _Descent:
        radius, most = ball.norm(delta), farthest(ball, inputs)
        never = torch.full_like(radius, torch.inf)
        return _Descent(inputs, labels, rivals, rng, delta, radius, share, most, inputs.clone(), never)

    @property
    def nearest(self) -> PerSample:
        """The smallest distance of all starts of a point towards the same class."""
        return self.distance.view(self.starts, -1).amin(0).repeat(self.starts)

    def see(self, ball: Ball, places: Points, across: Tensor) -> PerSample:
        """How far away the places are."""
        distance = ball.norm(places - self.inputs)
        better = across & (distance < self.distance)
        self.distance = torch.where(better, distance, self.distance)
        nearer = better.nonzero()[:, 0]
        self.places.index_copy_(0, nearer, places[nearer])
        return distance

    def hollows(self, ball: Ball, keep: int) -> Tensor:
        """Of each point and rival so many rows: those that found the nearest places, one of each hollow first."""
        distance = self.distance.view(self.starts, -1)
        column = torch.arange(distance.shape[1], device=distance.device)
        # What is in the hollow of a nearer one comes after all that are not, what found nothing at the very end.
        after = distance.where(distance < torch.inf, 0.0).amax(0)
        rank = distance.where(distance < torch.inf, (keep + 2) * after + 1)
        chosen = []
        for _ in range(keep):
            best = rank.argmin(0)
            chosen.append(best * len(column) + column)
            gap = ball.norm(self.places - self.places[chosen[-1]].repeat(self.starts, *[1] * (self.places.ndim - 1)))
            rank = torch.where(gap.view_as(rank) < _APART * distance[best, column], rank + after, rank)
            rank[best, column] = torch.inf
        return torch.cat(chosen)


def nearest_classes(classify: Classifier, inputs: Points, labels: Labels, ball: Ball) -> Tensor:
    """[B, classes - 1]: the other classes, by the distance to them if the classifier were linear at the point.

    A backward pass each, so of very many classes only those with the highest logits.
    """
    with torch.enable_grad():
        places = inputs.detach().requires_grad_()
        answers = classify(places)
        behind = answers.gather(1, labels[:, None]) - answers
        others = behind.detach().scatter(1, labels[:, None], torch.inf).argsort(1)[:, :-1][:, :_MOST_CANDIDATES]
        distances = []
        for rival in others.unbind(1):
            needed = behind.gather(1, rival[:, None])[:, 0]
            uphill = gradient(-needed, places, retain_graph=True)
            step = ball.to_plane(uphill, needed.detach(), inputs)
            reached = (uphill * step).flatten(1).sum(1) >= 0.999 * needed.detach()
            distances.append(ball.norm(step).masked_fill(~reached, torch.inf))
    return others.gather(1, torch.stack(distances, 1).argsort(dim=1, stable=True))
