"""About how long does it take to train and to judge an image network on one core of this machine?"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import torch

from widemargin.data.batches import updates_per_epoch
from widemargin.data.images import ImageSet
from widemargin.method import Method
from widemargin.networks.named import ImageShape, LeNetSpec
from widemargin.perturb.ascent import Uniform
from widemargin.perturb.search import Search
from widemargin.runs.prepare import channels_last
from widemargin.runs.run import Run
from widemargin.uncertainty.estimators import BeforeHead, MCDropoutSpec

_JUDGED_AT_ONCE = 256
Pace = Callable[[ImageShape, int], float]
"""Seconds that one image of such a batch takes for one pass."""


def updates(run: Run, epochs: int) -> int:
    assert isinstance(run.data, ImageSet)
    return epochs * updates_per_epoch(run.data.published_rows, run.plan.batch)


def training(run: Run, epochs: float, pace: Pace) -> float:
    """Seconds for so many epochs, from the time of one pass of a batch as large as the plan's."""
    assert isinstance(run.data, ImageSet)
    assert isinstance(run.network, ImageShape)
    # In latent space a search passes only through the head.
    each = 2.0 if isinstance(run.place, BeforeHead) else passes(run.method)
    each *= run.estimator.draws if isinstance(run.estimator, MCDropoutSpec) else 1
    rows = run.data.published_rows
    return epochs * rows * each * pace(run.network, run.plan.batch or rows) if epochs else 0.0


def judging(run: Run, passes: float, pace: Pace) -> float:
    """Seconds for so many passes of one image."""
    assert isinstance(run.network, ImageShape)
    return passes * pace(run.network, _JUDGED_AT_ONCE)


def passes(method: Method) -> float:
    """Forward and backward passes of an average sample in an update, the training's own counted as 2."""
    search = method.perturb
    if not isinstance(search, Search):
        return 2.0
    steps = search.ascent.steps
    return 2.0 + ((steps.least + steps.most) / 2 if isinstance(steps, Uniform) else steps.most)


@cache
def seconds_per_pass(shape: ImageShape, batch: int) -> float:
    """The pace of this machine, measured now."""
    network = channels_last(shape.build(torch.Generator().manual_seed(0))).eval().requires_grad_(False)
    side = shape.side if isinstance(shape, LeNetSpec) else 32
    # A ResNet's time no longer falls with larger batches, and its batches take seconds.
    images = torch.rand(batch if isinstance(shape, LeNetSpec) else min(batch, 16), shape.channels, side, side)
    images.requires_grad_()

    def once() -> float:
        # Of all threads: what one core would take.
        start = time.process_time()
        torch.autograd.grad(network(images).logsumexp(-1).sum(), images)
        return time.process_time() - start

    # The first is slow, and others may be at work on this machine.
    return min(once() for _ in range(3)) / len(images)
