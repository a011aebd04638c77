"""Where on the boundary is it nearest?  From any wrong place, along the boundary towards the point."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from widemargin.measure.attacks.attack import Classifier
from widemargin.measure.attacks.losses import towards
from widemargin.measure.attacks.nearer import inside, nearer, plainly_wrong
from widemargin.measure.attacks.rows import per_row, slope
from widemargin.perturb.balls import L1, Ball, Linf
from widemargin.shapes import Labels, PerSample, Points

_PATIENCE = 4
_GAIN = 1e-4
# A little behind the plane, so that rounding leaves it wrong; the bisection takes it back.
_BEYOND = 1.00001


def polished(
    classify: Classifier, inputs: Points, labels: Labels, places: Points, ball: Ball, rounds: int = 10
) -> Points:
    """Wrong places moved along the boundary for as long as they come nearer; the points themselves where none is wrong.

    Each round takes the boundary for the plane that touches it here, goes towards the place of that plane nearest to
    the point, and back to the boundary by bisection.  For a linear classifier one round ends at the very nearest place
    of that class.  Where the boundary is curved and the way turns out no nearer, half of it is tried.

    Any ball of the norm will do: its radius is not used.
    """
    places = nearer(classify, inputs, labels, inside(ball.box, places))
    distance = ball.norm(places - inputs)
    part = torch.ones_like(distance)
    moving = (distance > 0).nonzero()[:, 0]
    for _ in range(rounds):
        if len(moving) == 0:
            break
        start, own, here = inputs[moving], labels[moving], places[moving]
        tried = _next_place(classify, start, own, here, ball, part[moving])
        far = ball.norm(tried - start)
        better = (far > 0) & (far < distance[moving])
        gained = better & (far < (1 - _GAIN) * distance[moving])
        places[moving] = torch.where(per_row(better, tried), tried, here)
        distance[moving] = torch.where(better, far, distance[moving])
        part[moving] = torch.where(gained, 1.0, part[moving] / 2)
        moving = moving[part[moving] > 2.0**-_PATIENCE]
    return places


def _next_place(
    classify: Classifier, inputs: Points, labels: Labels, places: Points, ball: Ball, part: PerSample
) -> Points:
    with torch.no_grad():
        rival = classify(places).scatter(1, labels[:, None], -torch.inf).argmax(1)
    _, height, gradient = slope(classify, places, partial(towards, labels=labels, targets=rival))
    needed = (gradient * (places - inputs)).flatten(1).sum(1) - height
    way = (places - inputs).lerp(shortest(gradient, _BEYOND * needed, ball, inputs), per_row(part, inputs))
    # A boundary that bends away is only met farther out; beyond the distance already reached it would be no gain.
    stretch = ball.norm(places - inputs) / ball.norm(way).clamp_min(_tiny(way))
    far = way * per_row(stretch, way)
    near, far = (inside(ball.box, inputs + ball.box.clamp(delta, inputs)) for delta in (way, far))
    with torch.no_grad():
        met = plainly_wrong(classify(near), labels)
    return nearer(classify, inputs, labels, torch.where(per_row(met, near), near, far))


def shortest(gradient: Points, needed: PerSample, ball: Ball, center: Points) -> Points:
    """The shortest way in the box along which a linear function with this gradient climbs by `needed`.

    To the corner of the box where even all of it is not enough.
    """
    size, needed = gradient.flatten(1).abs(), needed.clamp_min(0)[:, None]
    down, up = (side.expand_as(center).flatten(1) for side in ball.box.room(center))
    room = torch.where(gradient.flatten(1) > 0, up, -down).clamp_min(0)
    if isinstance(ball, L1):
        length = _steepest_first(size, room, needed)
    else:
        length = _all_at_once(size, torch.ones_like(size) if isinstance(ball, Linf) else size, room, needed)
    return (length * gradient.flatten(1).sign()).view_as(gradient)


def _steepest_first(size: Tensor, room: Tensor, needed: Tensor) -> Tensor:
    """l1: features are used up in the order of their slopes."""
    slopes, order = size.sort(1, descending=True)
    climbs = torch.where(slopes > 0, slopes * room.gather(1, order), 0.0)
    before = torch.cat([torch.zeros_like(needed), climbs.cumsum(1)[:, :-1]], 1)
    used = ((needed - before).clamp_min(0) / slopes.clamp_min(_tiny(size))).minimum(room.gather(1, order))
    return torch.zeros_like(size).scatter(1, order, torch.where(slopes > 0, used, 0.0))


def _all_at_once(size: Tensor, speed: Tensor, room: Tensor, needed: Tensor) -> Tensor:
    """l2 and linf: every feature goes at its speed until it hits the box.

    The climb is concave and piecewise linear in time, so Newton's steps reach the right time from below, exactly.
    """
    time = torch.zeros_like(needed)
    for _ in range(50):
        stuck = time * speed >= room
        climbed = torch.where(stuck, size * room, 0.0).sum(1, keepdim=True)
        rate = torch.where(stuck, 0.0, size * speed).sum(1, keepdim=True)
        later = torch.where(rate > 0, (needed - climbed) / rate.clamp_min(_tiny(size)), torch.inf).maximum(time)
        if torch.equal(later, time):
            break
        time = later
    return torch.where(size > 0, (time * speed).minimum(room), 0.0)


def _tiny(like: Tensor) -> float:
    return torch.finfo(like.dtype).tiny
