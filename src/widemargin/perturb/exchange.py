"""Exchange: in a sparse norm, what some features were moved by is moved by another one instead."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import torch
from torch import Tensor

from widemargin.perturb.attack import Classifier
from widemargin.perturb.balls import Ball
from widemargin.perturb.lead import Lead
from widemargin.perturb.refine import refine
from widemargin.shapes import Labels, Points

# Of how many features, those moved farthest, the move is taken back, and which share of it: of one, of two together.
_GIVERS = 4
_OF_ONE, _OF_TWO, _OF_ALL = (1.0, 0.5, 0.25, 0.0625), (1.0, 0.5, 0.2), (1.0, 0.5, 0.25, 0.1)
# To how many features it may go: those with the steepest slope.
_RECEIVERS = 16
# How many of the exchanges are followed to the boundary and along it, for how many rounds, and how often.
_FOLLOWED, _ALONG, _ROUNDS = 2, 5, 2
# A gain below this share ends a point's rounds.
_GAIN = 1e-4
_ROWS_AT_ONCE = 128
# Of how many points all exchanges are tried together: so many fit into the processor's cache.
_TRIED_AT_ONCE = 16


def exchange(classify: Classifier, inputs: Points, labels: Labels, places: Points, ball: Ball) -> Points:
    """Places on the boundary brought nearer by exchanges for as long as there are any; else as they are.

    In l1 the shortest steps move few features, and which ones is a choice among many: descent along the boundary of a
    network with corners ends at one from which only a jump leads on.  An exchange is such a jump: it is as long as the
    step was, so that it leads on wherever it ends beyond the boundary.

    Any ball of the norm will do: its radius is not used.
    """
    nearest = [
        _exchanged(classify, inputs[some], labels[some], places[some], ball)
        for some in torch.arange(len(inputs), device=inputs.device).split(_ROWS_AT_ONCE)
    ]
    return torch.cat(nearest) if nearest else places


def _exchanged(classify: Classifier, inputs: Points, labels: Labels, places: Points, ball: Ball) -> Points:
    places = places.clone()
    moving = (places != inputs).any(1).nonzero()[:, 0]
    for _ in range(_ROUNDS):
        if len(moving) == 0:
            break
        start, row_labels, here = inputs[moving], labels[moving], places[moving]
        each = zip(*(whole.split(_TRIED_AT_ONCE) for whole in (start, row_labels, here)), strict=True)
        tried = torch.cat([_farthest_beyond(classify, x, y, place, ball) for x, y, place in each], 1)
        repeated = start.repeat(len(tried), 1)
        ends = refine(classify, repeated, row_labels.repeat(len(tried)), tried.flatten(0, 1), ball, _ALONG)
        far = ball.norm(ends - repeated).view(len(tried), -1)
        nearest, which = torch.where(far > 0, far, torch.inf).min(0)
        better = nearest < (1 - _GAIN) * ball.norm(here - start)
        there = ends.view_as(tried)[which, torch.arange(len(moving), device=which.device)]
        moving = moving[better]
        places[moving] = there[better]
    return places


def _farthest_beyond(classify: Classifier, inputs: Points, labels: Labels, places: Points, ball: Ball) -> Tensor:
    """[followed, B, d]: of all exchanges those by which the wrong class leads most."""
    _, _, slopes = Lead(labels).slope(classify, places)
    exchanges = _exchanges(places - inputs, ball.box.free(slopes))
    count, features = exchanges.shape[1:]
    down, up = ball.box.room(inputs)
    tried = inputs[:, None] + exchanges.clamp(down[:, None], up[:, None])
    with torch.no_grad():
        leads = Lead(labels.repeat_interleave(count))(classify(tried.flatten(0, 1))).view(-1, count)
    best = leads.topk(min(_FOLLOWED, count), dim=1).indices
    return tried.gather(1, best[:, :, None].expand(-1, -1, features)).transpose(0, 1)


def _exchanges(delta: Tensor, slopes: Tensor) -> Tensor:
    """[B, exchanges, d]: every way to give, to every receiver."""
    features = delta.shape[1]
    givers = delta.abs().topk(min(_GIVERS, features), dim=1).indices
    of_givers, of_others = _shares(givers.shape[1])
    of_givers, of_others = of_givers.to(delta), of_others.to(delta)
    shares = of_others[None, :, None].repeat(len(delta), 1, features)
    shares.scatter_(2, givers[:, None].expand(-1, len(of_givers), -1), of_givers.expand(len(delta), -1, -1))
    given = (delta.abs()[:, None] * shares).sum(2)
    steepest = slopes.abs().topk(min(_RECEIVERS, features), dim=1).indices
    signs = torch.zeros_like(delta)[:, None].repeat(1, steepest.shape[1], 1)
    signs.scatter_(2, steepest[:, :, None], slopes.sign().gather(1, steepest)[:, :, None])
    left = delta[:, None] * (1 - shares)
    return (left[:, :, None] + given[:, :, None, None] * signs[:, None]).flatten(1, 2)


@cache
def _shares(givers: int) -> tuple[Tensor, Tensor]:
    """Of each way to give: the shares of those that moved farthest, and the share of all others."""
    ways: list[tuple[tuple[int, ...], float]] = [((giver,), share) for giver in range(givers) for share in _OF_ONE]
    ways += [(pair, share) for pair in combinations(range(givers), 2) for share in _OF_TWO]
    some = torch.zeros(len(ways), givers, dtype=torch.float64)
    for way, (who, share) in enumerate(ways):
        some[way, list(who)] = share
    everyone = torch.tensor(_OF_ALL, dtype=torch.float64)
    return (
        torch.cat([some, everyone[:, None].expand(-1, givers)]),
        torch.cat([some.new_zeros(len(ways)), everyone]),
    )
