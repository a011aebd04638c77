"""Transfer from a surrogate: a small ordinary network, fitted to the answers of the one that is attacked."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from widemargin.data.dataset import Examples, row_numbers
from widemargin.measure.accuracy import BATCH_SIZE, iter_batches
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.named import LeNetSpec
from widemargin.perturb.attack import Classifier
from widemargin.perturb.balls import Ball
from widemargin.perturb.frozen import frozen
from widemargin.perturb.line_search import line_search
from widemargin.perturb.pgd import PGD
from widemargin.rng import Rng, RowRng
from widemargin.shapes import PerSample, Points
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.predictive import is_correct
from widemargin.uncertainty.single import Single

UPDATES = 300
"""Of points with up to 3,072 features; of larger ones in proportion fewer, so that the work is bounded."""
_FEATURES = 3_072
_LEAST_UPDATES = 30
_BATCH = 64
_LEARNING_RATE = 2e-3
_STEPS = 20
_WIDTH = 128
_SIDES = range(8, 65)


@dataclass(frozen=True, eq=False)
class Surrogate:
    network: Network
    kind: str
    agreement: float
    """On which share of the points it gives the class that the network gives."""
    updates: int


def surrogate(network: Network, examples: Examples, ball: Ball, seed: int = 0, updates: int = UPDATES) -> Surrogate:
    """Fitted to the mean probabilities at the points and, for each, at one random place of its ball.

    A LeNet for square images of usual sizes, else an MLP.  No clock ends it, so it is the same every time.
    """
    points = torch.cat([inputs for _, inputs, _ in iter_batches(examples, BATCH_SIZE)])
    rng = Rng.seeded(seed, purpose="stand-in", device=points.device)
    seen = torch.cat([points, points + ball.sample(points, rng)])
    with frozen(network), torch.no_grad():
        answers = torch.cat([network(part) for part in seen.split(BATCH_SIZE)]).exp()
    made, kind = _built(points, answers.shape[1], seed)
    updates = max(_LEAST_UPDATES, updates * _FEATURES // max(_FEATURES, points[0].numel()))
    _fit(made, seen, answers, rng, updates)
    fitted = Single(at_input(made)).eval()
    with torch.no_grad():
        classes = torch.cat([fitted(part).argmax(1) for part in points.split(BATCH_SIZE)])
    agreement = float((classes == answers[: len(points)].argmax(1)).double().mean())
    return Surrogate(fitted, kind, agreement, updates)


def fooled(network: Network, examples: Examples, ball: Ball, fitted: Surrogate, rows: int = BATCH_SIZE) -> PerSample:
    """How far each point is from the nearest place known where both are wrong: infinite if none is in the ball.

    Places are those of the surrogate's highest loss in the ball: just across its own boundary, as most attacks stop,
    little would carry over.  Only points that both classify right are tried; a place is brought to the network's own
    boundary before it is measured.
    """
    attack, distances = PGD(ball, _STEPS), []
    with frozen(network), frozen(fitted.network):
        for numbers, inputs, labels in iter_batches(examples, rows):
            with torch.no_grad():
                both = is_correct(network(inputs), labels) & is_correct(fitted.network(inputs), labels)
            distance = torch.full((len(inputs),), torch.inf, dtype=torch.float64, device=inputs.device)
            tried = both.nonzero()[:, 0]
            if len(tried):
                start, their_labels = inputs[tried], labels[tried]
                rng = RowRng(0, row_numbers(examples, numbers).to(inputs.device)[tried])
                places = attack(fitted.network, start, their_labels, rng).points
                distance[tried] = _distance(network, start, their_labels, places, ball)
            distances.append(distance.cpu())
    return torch.cat(distances)


def _distance(classify: Classifier, inputs: Points, labels: Tensor, places: Points, ball: Ball) -> Tensor:
    with torch.no_grad():
        broken = ~is_correct(classify(places), labels)
    distance = torch.full((len(inputs),), torch.inf, dtype=torch.float64, device=inputs.device)
    if bool(broken.any()):
        reached = line_search(classify, inputs[broken], labels[broken], places[broken])
        far, before = (ball.norm(place - inputs[broken]).double() for place in (reached, places[broken]))
        distance[broken] = torch.where(far > 0, far, before)
    return distance


class _Scaled(nn.Module):
    """Features of a table may have any scale."""

    center: Tensor
    scale: Tensor

    def __init__(self, points: Points) -> None:
        super().__init__()
        self.register_buffer("center", points.mean(0, keepdim=True))
        self.register_buffer("scale", points.std(0, correction=0, keepdim=True).clamp_min(1e-6))

    def forward(self, points: Points) -> Points:
        return (points - self.center) / self.scale


def _built(points: Points, classes: int, seed: int) -> tuple[nn.Module, str]:
    generator = torch.Generator().manual_seed(seed)
    shape = points.shape[1:]
    if len(shape) == 3 and shape[1] == shape[2] and shape[1] in _SIDES:
        return LeNetSpec(classes, shape[0], shape[1]).build(generator).to(points.device), "LeNet"
    mlp = MLPSpec((shape.numel(), _WIDTH, _WIDTH, classes)).build(generator)
    return nn.Sequential(_Scaled(points), nn.Flatten(), mlp).to(points.device), "MLP"


def _fit(network: nn.Module, points: Points, answers: Tensor, rng: Rng, updates: int) -> None:
    optimizer = torch.optim.Adam(network.parameters(), _LEARNING_RATE)
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(updates):
        if len(order) == 0:
            order = rng.permutations(len(points))[0]
        rows, order = order[:_BATCH], order[_BATCH:]
        optimizer.zero_grad()
        cross_entropy(network(points[rows]), answers[rows]).backward()
        optimizer.step()
