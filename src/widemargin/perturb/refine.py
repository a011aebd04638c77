"""Refinement: from a misclassified point along the boundary to where it is nearest to the input."""

from __future__ import annotations

import torch
from torch import Tensor

from widemargin.perturb.attack import Classifier
from widemargin.perturb.balls import Ball
from widemargin.perturb.lead import Lead
from widemargin.perturb.line_search import inside, line_search, plainly_wrong
from widemargin.perturb.rows import per_row
from widemargin.shapes import Labels, PerSample, Points

_PATIENCE = 4
_GAIN = 1e-4
# To which share of its way a place is on the boundary while it moves: a gain is ten times as much.
_ROUGHLY = 1e-5
# Most places are that near to the boundary already (half, so that rounding does not matter), most others nearly so.
_FIRST = (_ROUGHLY / 2, 1e-3, 0.03)
# A little behind the plane, so that rounding leaves it wrong; the bisection takes it back.
_BEYOND = 1.00001


def refine(
    classify: Classifier, inputs: Points, labels: Labels, places: Points, ball: Ball, rounds: int = 10
) -> Points:
    """Wrong places moved along the boundary for as long as they come nearer; the points themselves where none is wrong.

    Each round takes the boundary for the plane that touches it here, goes towards the place of that plane nearest to
    the point, and back to the boundary by bisection.  For a linear classifier one round ends at the very nearest place
    of that class.  Where the boundary is curved and the way turns out no nearer, half of it is tried.

    Any ball of the norm will do: its radius is not used.
    """
    places = line_search(classify, inputs, labels, inside(ball.box, places), _ROUGHLY, _FIRST)
    distance = ball.norm(places - inputs)
    part = torch.ones_like(distance)
    moving = (distance > 0).nonzero()[:, 0]
    for _ in range(rounds):
        if len(moving) == 0:
            break
        start, row_labels, here = inputs[moving], labels[moving], places[moving]
        tried = _next_place(classify, start, row_labels, here, ball, part[moving])
        far = ball.norm(tried - start)
        better = (far > 0) & (far < distance[moving])
        gained = better & (far < (1 - _GAIN) * distance[moving])
        places[moving] = torch.where(per_row(better, tried), tried, here)
        distance[moving] = torch.where(better, far, distance[moving])
        part[moving] = torch.where(gained, 1.0, part[moving] / 2)
        moving = moving[part[moving] > 2.0**-_PATIENCE]
    return line_search(classify, inputs, labels, places, first=(_ROUGHLY,))


def _next_place(
    classify: Classifier, inputs: Points, labels: Labels, places: Points, ball: Ball, part: PerSample
) -> Points:
    _, height, gradient = Lead(labels).slope(classify, places)
    needed = (gradient * (places - inputs)).flatten(1).sum(1) - height
    delta_to_plane = (places - inputs).lerp(ball.to_plane(gradient, _BEYOND * needed, inputs), per_row(part, inputs))
    # A boundary that bends away is only met farther out; beyond the distance already reached it would be no gain.
    stretch = ball.norm(places - inputs) / ball.norm(delta_to_plane).clamp_min(_tiny(delta_to_plane))
    far = delta_to_plane * per_row(stretch, delta_to_plane)
    near, far = (inside(ball.box, inputs + ball.box.clamp(delta, inputs)) for delta in (delta_to_plane, far))
    with torch.no_grad():
        met = plainly_wrong(classify(near), labels)
    return line_search(classify, inputs, labels, torch.where(per_row(met, near), near, far), _ROUGHLY, _FIRST)


def _tiny(like: Tensor) -> float:
    return torch.finfo(like.dtype).tiny
