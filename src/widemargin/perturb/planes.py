"""Which way to a plane is the shortest, if there is a box to stay in?"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from widemargin.perturb.balls import L1, Ball, Linf
from widemargin.perturb.filling import time_to_fill
from widemargin.shapes import PerSample, Points


def shortest_way(gradient: Points, needed: PerSample, ball: Ball, center: Points) -> Points:
    """The shortest way in the box along which a linear function with this gradient climbs by `needed`.

    To the corner of the box where even all of it is not enough, nowhere where nothing is needed.
    Of the ball, norm and box count, not its radius.
    """
    size, room, needed = gradient.flatten(1).abs(), ball.box.room_ahead(gradient, center), needed.clamp_min(0)
    if isinstance(ball, L1):
        length = _steepest_first(size, room, needed)
    elif isinstance(ball, Linf):
        length = room.minimum(time_to_fill(size, _climbs(size, room), needed))
    else:
        # The square of a tiny slope underflows; only ratios matter.
        steepest = size.amax(1).clamp_min(torch.finfo(size.dtype).tiny)
        size = size / steepest[:, None]
        length = (time_to_fill(size * size, _climbs(size, room), needed / steepest) * size).minimum(room)
    return length.view_as(gradient) * gradient.sign()


def _steepest_first(size: Tensor, room: Tensor, needed: PerSample) -> Tensor:
    """l1: the features of largest slope first, each as far as the box lets it."""
    size, order = size.sort(1, descending=True)
    room = room.gather(1, order)
    before = pad(_climbs(size, room).cumsum(1)[:, :-1], (1, 0))
    length = ((needed[:, None] - before).clamp_min(0) / size.clamp_min(torch.finfo(size.dtype).tiny)).minimum(room)
    return torch.zeros_like(length).scatter(1, order, torch.where(size > 0, length, 0.0))


def _climbs(size: Tensor, room: Tensor) -> Tensor:
    """What each feature can give.  Of one without slope and without bounds: nothing, not 0 times infinity."""
    return (size * room).nan_to_num_(0.0, torch.inf)
