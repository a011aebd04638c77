"""Where a minimum-norm search begins if it begins in many places: at linear models from afar, in corners of a ball."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from widemargin.perturb.attack import Classifier
from widemargin.perturb.balls import Ball
from widemargin.perturb.lead import Lead
from widemargin.perturb.rows import per_row, wrong
from widemargin.shapes import Labels, PerSample, Points

# By how much the start is to be behind the boundary of the linear model.
_BEYOND = 1.02
# How far away linear models are taken by turns, in radii at which something is across the boundary.
_FAR = (2.0, 8.0)
# Which powers of two times the distance to the first linear model's boundary are tried as such a radius.
_POWERS = range(-3, 9)
# Of so many features, the best alone, every two are moved together.
_PAIRED = 12
_ROWS_AT_ONCE = 128


def linear_boundary(
    classify: Classifier, inputs: Points, lead: Lead, ball: Ball, away: Points, else_by: PerSample
) -> Points:
    """The shortest step across the boundary of the linear model that the classifier is at `inputs + away`.

    A model from afar may have the point itself across: then its steepest way, as far as `else_by`.
    """
    _, heights, uphill = lead.slope(classify, inputs + away)
    needed = (uphill * away).flatten(1).sum(1) - heights
    needed = torch.where(needed > 0, needed, ball.dual_norm(uphill) * else_by)
    # Where the gradient all but vanishes the linear model has no boundary within reach.
    return ball.to_plane(uphill, _BEYOND * needed, inputs).nan_to_num(0, 0, 0)


def from_afar(classify: Classifier, inputs: Points, lead: Lead, ball: Ball, drawn: Points, distance: Tensor) -> Points:
    """Steps across the boundaries of linear models that are taken elsewhere, where each row's draw points to.

    The rows are starts of the same points one after the other, the first of which stay where they are; `distance` has
    one number for each point.  It may be of another order than the way to the boundary, where most of a network is
    switched off: so the steps are made once to see how far away the boundary is in any of their directions, and once
    more from that far.
    """
    starts = len(inputs) // len(distance)
    start = torch.arange(starts, device=inputs.device).repeat_interleave(len(distance))
    # Where the classifier is flat its linear model has no boundary, and any scale will do to begin with.
    distance = torch.where(distance > 0, distance, 1.0)
    far = torch.where(start // 2 % 2 == 0, *_FAR) * (start > 0)
    drawn = ball.box.free(drawn)
    way = drawn * per_row(far / ball.norm(drawn).clamp_min(1e-12), drawn)

    def steps(scale: Tensor) -> Points:
        scale = scale.repeat(starts)
        away = ball.box.clamp(way * per_row(scale, way), inputs)
        return linear_boundary(classify, inputs, lead, ball, away, scale)

    return steps(_reach(classify, inputs, lead.labels, ball, [steps(distance), drawn], distance))


def _reach(
    classify: Classifier, inputs: Points, labels: Labels, ball: Ball, directions: Sequence[Points], distance: Tensor
) -> Tensor:
    """The smallest power of two times the distance at which one of the directions is across; the distance if none is.

    Of several sets of directions the next one counts for points of which none in those before is across.
    """
    points = len(distance)
    every = torch.arange(len(inputs), device=inputs.device).view(-1, points)
    reach, left = distance.clone(), torch.arange(points, device=inputs.device)
    for some in directions:
        unit = some / per_row(ball.norm(some).clamp_min(1e-12), some)
        for power in _POWERS:
            if len(left) == 0:
                return reach
            radius, row = distance[left] * 2.0**power, every[:, left].flatten()
            delta = ball.box.clamp(unit[row] * per_row(radius.repeat(len(every)), unit), inputs[row])
            with torch.no_grad():
                across = wrong(classify(inputs[row] + delta), labels[row]).view(len(every), -1).any(0)
            reach[left[across]] = radius[across]
            left = left[~across]
    return reach


def corners(classify: Classifier, inputs: Points, lead: Lead, ball: Ball, radius: PerSample, keep: int) -> Tensor:
    """[keep * B, d]: of all moves of one feature and of two, as long as the radius, those by which the lead is largest.

    In l1 these are the corners of the ball and the middles between them.  Which features the shortest step moves is a
    choice among many, and descents from elsewhere come to some of them only.
    """
    rows = torch.arange(len(inputs), device=inputs.device).split(_ROWS_AT_ONCE)
    best = [_corners(classify, inputs[some], lead.at(some), ball, radius[some], keep) for some in rows]
    return torch.cat(best).transpose(0, 1).flatten(0, 1)


def _corners(classify: Classifier, inputs: Points, lead: Lead, ball: Ball, radius: PerSample, keep: int) -> Tensor:
    """[B, keep, d]"""
    features = inputs.shape[1]
    one = torch.eye(features, dtype=inputs.dtype, device=inputs.device)
    down, up = ball.box.room(inputs)
    single = (torch.cat([one, -one]) * radius[:, None, None]).clamp(down[:, None], up[:, None])
    leads = _leads(classify, inputs, lead, single)
    best = leads.topk(min(_PAIRED, 2 * features), dim=1).indices
    first, second = torch.combinations(torch.arange(best.shape[1], device=best.device)).unbind(1)
    pairs = (_picked(single, best[:, first]) + _picked(single, best[:, second])) / 2
    moves, leads = torch.cat([single, pairs], 1), torch.cat([leads, _leads(classify, inputs, lead, pairs)], 1)
    return _picked(moves, leads.topk(min(keep, leads.shape[1]), dim=1).indices)


def _leads(classify: Classifier, inputs: Points, lead: Lead, moves: Tensor) -> Tensor:
    """[B, moves]"""
    count = moves.shape[1]
    row = torch.arange(len(inputs), device=inputs.device).repeat_interleave(count)
    with torch.no_grad():
        return lead.at(row)(classify((inputs[:, None] + moves).flatten(0, 1))).view(-1, count)


def _picked(moves: Tensor, which: Tensor) -> Tensor:
    """[B, picked, d] of [B, moves, d] and [B, picked]."""
    return moves.gather(1, which[:, :, None].expand(-1, -1, moves.shape[2]))
