"""FMN: minimum-norm attack in any norm, by gradient steps in a ball whose radius follows the boundary."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from widemargin.perturb.attack import Classifier, Perturbed, perturbed
from widemargin.perturb.balls import OPEN, UNIT, Ball, Box, Norm
from widemargin.perturb.ddn import check_steps, direction
from widemargin.perturb.gradient import gradient
from widemargin.perturb.lead import Lead, before_softmax
from widemargin.perturb.line_search import Nearest, fade, farthest
from widemargin.perturb.rows import among, at_once, per_row, wrong
from widemargin.rng import AnyRng, RowRng
from widemargin.shapes import Labels, PerSample, Points

_MOST_CANDIDATES = 20
# Small batches cost as much as larger ones: so many rows of several targets are moved together, from every start.
_ROWS_SIDE_BY_SIDE = 256
# By how much the start is to be behind the boundary of the linear model.
_BEYOND = 1.02
# How far away the other linear models are taken by turns, in distances to the boundary of the first.
_FAR = (8.0, 16.0)
# What steps and changes of the radius begin with as fractions of the radius, and by how much they become smaller.
_LONG, _SHORT, _SHORTEST, _LESS = 1.0, 0.3, 0.1, 0.01
# How many starts towards each class descend a second time.
_AGAIN = 8
# Places nearer to each other than this share of their distance count as of one hollow.
_APART = 0.3


@dataclass(frozen=True)
class FMN:
    """Fast minimum norm (Pintor et al. 2021, Alg. 1).

    Three departures.  It starts where the boundary would be if the classifier were linear at the point.  Steps are
    shares of the radius, and the radius grows even before anything is found: so it needs no scale and no box.
    With several starts, the others are where the boundary would be if the classifier were everywhere as it is at some
    place farther off: starts drawn near the first all end in the same hollow.  Every second one takes shorter steps.
    The best few of each class, of different hollows if there are any, descend once more from the nearest places that
    they found, with yet shorter steps: where the boundary has corners the first descent ends too early, and it takes
    the second to see which of several hollows is the deepest.
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
            first = self._descended(classify, begun)
            ends = [first]
            if self.starts > 1:
                best = first.apart(ball, self.starts, min(self.starts, _AGAIN))
                ends.append(self._descended(classify, best.again(ball)))
            for end in ends:
                for which in torch.arange(len(end.labels), device=row.device).split(len(inputs)):
                    seen.see(end.places[which], end.distance[which] < torch.inf)
        return perturbed(ball, inputs, seen.places)

    def _begun(self, classify: Classifier, inputs: Points, labels: Labels, rivals: Labels, rng: RowRng) -> _Descent:
        """Where the boundary of the linear model is, then the other starts one after the other."""
        ball = self.norm(0.0, self.box)
        here = torch.zeros_like(inputs)
        delta = _to_linear_boundary(classify, inputs, labels, rivals, ball, here, ball.norm(here))
        distance = ball.norm(delta)
        if self.starts == 1:
            return _Descent.at(ball, inputs, labels, rivals, rng, delta, torch.full_like(distance, _LONG))
        row = torch.arange(len(inputs), device=inputs.device).repeat(self.starts)
        start = torch.arange(self.starts, device=inputs.device).repeat_interleave(len(inputs))
        # Starts of one stream would all go the same way wherever the classifier is flat.
        draws = rng.at(row).apart(start)
        away = self.box.free(draws.of("elsewhere").normal(*inputs.shape[1:]).to(inputs))
        far = torch.where(start // 2 % 2 == 0, *_FAR) * distance[row] * (start > 0)
        away = self.box.clamp(away * per_row(far / ball.norm(away).clamp_min(1e-12), away), inputs[row])
        delta = _to_linear_boundary(classify, inputs[row], labels[row], rivals[row], ball, away, distance[row])
        share = torch.where(start % 2 == 0, _LONG, _SHORT).to(inputs)
        return _Descent.at(ball, inputs[row], labels[row], rivals[row], draws, delta, share)

    def _descended(self, classify: Classifier, now: _Descent) -> _Descent:
        """By steps that begin with a fraction of the radius."""
        ball, unit = self.norm(0.0, self.box), self.norm(1.0, OPEN)
        # A step of fraction 1 crosses the ball in any norm.
        length = unit.l2_reach(now.inputs)
        lead, clamp = _lead(now.labels, now.rivals), self.box.clamp_around(now.inputs)
        for step in range(self.steps):
            done = step / self.steps
            places = now.inputs + now.delta
            answers, heights, slopes = lead.slope(classify, places)
            slopes, across = self.box.free(slopes), wrong(answers, now.labels)
            distance = now.see(ball, places, across)
            gamma = now.share * fade(self.gamma, 0.001, done)
            estimate = distance + heights.abs() / ball.dual_norm(slopes)
            estimate = torch.where((now.distance < torch.inf) | ~estimate.isfinite(), 0.0, estimate)
            radius = torch.where(across, now.radius * (1 - gamma), (now.radius * (1 + gamma)).maximum(estimate))
            now.radius = torch.where(radius > 0, radius, 1.0).minimum(now.most)
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

    @staticmethod
    def at(
        ball: Ball, inputs: Points, labels: Labels, rivals: Labels, rng: RowRng, delta: Points, share: PerSample
    ) -> _Descent:
        radius, most = ball.norm(delta), farthest(ball, inputs)
        never = torch.full_like(radius, torch.inf)
        return _Descent(inputs, labels, rivals, rng, delta, radius, share, most, inputs.clone(), never)

    def again(self, ball: Ball) -> _Descent:
        """From the nearest places (the point itself if there is none) towards whichever class leads."""
        delta, share = self.places - self.inputs, torch.full_like(self.share, _SHORTEST)
        return _Descent.at(ball, self.inputs, self.labels, self.labels, self.rng, delta, share)

    def see(self, ball: Ball, places: Points, across: Tensor) -> PerSample:
        """How far away the places are."""
        distance = ball.norm(places - self.inputs)
        better = across & (distance < self.distance)
        self.distance = torch.where(better, distance, self.distance)
        nearer = better.nonzero()[:, 0]
        self.places.index_copy_(0, nearer, places[nearer])
        return distance

    def apart(self, ball: Ball, starts: int, keep: int) -> _Descent:
        """Of each point and rival so many starts: those that found the nearest places, one of each hollow first."""
        distance = self.distance.view(starts, -1)
        column = torch.arange(distance.shape[1], device=distance.device)
        # What is in the hollow of a nearer one comes after all that are not, what found nothing at the very end.
        after = distance.where(distance < torch.inf, 0.0).amax(0)
        rank = distance.where(distance < torch.inf, (keep + 2) * after + 1)
        chosen = []
        for _ in range(keep):
            best = rank.argmin(0)
            chosen.append(best * len(column) + column)
            gap = ball.norm(self.places - self.places[chosen[-1]].repeat(starts, *[1] * (self.places.ndim - 1)))
            rank = torch.where(gap.view_as(rank) < _APART * distance[best, column], rank + after, rank)
            rank[best, column] = torch.inf
        return among(self, torch.cat(chosen))


def _to_linear_boundary(
    classify: Classifier, inputs: Points, labels: Labels, rivals: Labels, ball: Ball, away: Points, else_by: PerSample
) -> Points:
    """The shortest step across the boundary of the linear model that the classifier is at `inputs + away`.

    A model from afar may have the point itself across: then its steepest way, as far as `else_by`.
    """
    _, heights, uphill = _lead(labels, rivals).slope(classify, inputs + away)
    needed = (uphill * away).flatten(1).sum(1) - heights
    needed = torch.where(needed > 0, needed, ball.dual_norm(uphill) * else_by)
    # Where the gradient all but vanishes the linear model has no boundary within reach.
    return ball.to_plane(uphill, _BEYOND * needed, inputs).nan_to_num(0, 0, 0)


def _lead(labels: Labels, rivals: Labels) -> Lead:
    """Of a rival, or of the best other class if the rivals are the labels themselves."""
    return Lead(labels) if bool((rivals == labels).all()) else Lead(labels, rivals)


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
