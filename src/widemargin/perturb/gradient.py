"""The one way to take a gradient: of each sample's own value at its own point, all in one backward pass."""

from __future__ import annotations

from collections.abc import Callable

import torch

from widemargin.perturb.attack import Classifier
from widemargin.shapes import Encoded, LogProbs, PerSample, Points
from widemargin.uncertainty.network import check_lets_gradients_through


def gradient(values: PerSample, points: Encoded, *, retain_graph: bool = False) -> Encoded:
    """Of values that were computed from the points, which require a gradient; no other gradients are left anywhere."""
    check_lets_gradients_through(values, "inputs")
    (uphill,) = torch.autograd.grad(values.sum(), points, retain_graph=retain_graph)
    return uphill


def gradient_or_zero(values: PerSample, points: Encoded) -> Encoded:
    """The same of values that may not depend on the points at all."""
    if not values.requires_grad:
        return torch.zeros_like(points)
    (uphill,) = torch.autograd.grad(values.sum(), points, allow_unused=True)
    return torch.zeros_like(points) if uphill is None else uphill


def slope(
    classify: Classifier, points: Points, height: Callable[[LogProbs], PerSample]
) -> tuple[LogProbs, PerSample, Encoded]:
    """Logits, heights and the gradient of each point's height, in one pass."""
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        logits = classify(points)
        heights = height(logits)
        uphill = gradient(heights, points)
    # Where the classifier cannot be differentiated, no direction is better than one that is not a number.
    return logits.detach(), heights.detach(), uphill.nan_to_num(0.0, 0.0, 0.0)


def slope_or_flat(
    classify: Classifier, points: Points, height: Callable[[LogProbs], PerSample]
) -> tuple[PerSample, Encoded]:
    """Heights and their gradient, which is 0 where the classifier cuts it off; `slope` would refuse."""
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        heights = height(classify(points))
        uphill = gradient_or_zero(heights, points)
    return heights.detach(), uphill.nan_to_num(0.0, 0.0, 0.0)
