"""Linear classifiers, whose distance to the boundary is known."""

import torch
from torch import Tensor

from widemargin.measure.attacks.attack import Classifier
from widemargin.perturb.balls import L1, Ball, Linf

FEATURES = 12


def linear(classes: int, features: int = FEATURES, seed: int = 0) -> tuple[Tensor, Classifier]:
    rng = torch.Generator().manual_seed(seed)
    weights = torch.randn(features, classes, generator=rng)
    return weights, lambda points: points.flatten(1) @ weights


def points(classify: Classifier, count: int, features: int = FEATURES) -> tuple[Tensor, Tensor]:
    """In [0.2, 0.8], all classified right."""
    rng = torch.Generator().manual_seed(1)
    inputs = 0.2 + 0.6 * torch.rand(count, features, generator=rng)
    return inputs, classify(inputs).argmax(1)


def distances(ball: Ball, weights: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """To the nearest boundary, without a box: the lead over its slope in the dual norm."""
    logits = inputs @ weights
    found = []
    for other in range(weights.shape[1]):
        slope = weights[:, other] - weights.T[labels]
        lead = (logits.gather(1, labels[:, None]) - logits[:, other : other + 1]).squeeze(1)
        found.append(torch.where(labels == other, torch.inf, lead / ball.dual_norm(slope).clamp_min(1e-12)))
    return torch.stack(found).amin(0)


def distance_in_box(ball: Ball, slope: Tensor, lead: Tensor, low: Tensor, high: Tensor, inputs: Tensor) -> Tensor:
    """Two classes, with a box: bisection over the radius of how far the lead can be brought down in ball and box."""
    room = torch.where(slope > 0, high - inputs, inputs - low)
    size = slope.abs().expand_as(room)
    near, far = torch.zeros_like(lead), torch.full_like(lead, 1e3)
    for _ in range(60):
        radius = (near + far) / 2
        if isinstance(ball, Linf):
            reach = (size * room.minimum(radius[:, None])).sum(1)
        elif isinstance(ball, L1):
            order = size.argsort(1, descending=True)
            use, left = torch.zeros_like(room), radius.clone()
            for column in order.T:
                take = room.gather(1, column[:, None])[:, 0].minimum(left)
                use.scatter_(1, column[:, None], take[:, None])
                left = left - take
            reach = (size * use).sum(1)
        else:
            # |min(t size, room)| = radius, by a second bisection.
            a, b = torch.zeros_like(lead), torch.full_like(lead, 1e4)
            for _ in range(60):
                t = (a + b) / 2
                inside = torch.linalg.vector_norm((t[:, None] * size).minimum(room), dim=1) <= radius
                a, b = torch.where(inside, t, a), torch.where(inside, b, t)
            reach = (size * (a[:, None] * size).minimum(room)).sum(1)
        enough = reach >= lead
        near, far = torch.where(enough, near, radius), torch.where(enough, radius, far)
    return far
