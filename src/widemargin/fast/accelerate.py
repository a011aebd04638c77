"""`accelerated(model)`: a copy that computes the same logits and input gradients in less time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import overload

import torch
from torch import Tensor, nn

from widemargin.fast.rewriting import Rewritten, rewritten
from widemargin.fast.stacking import StackedEnsemble, is_stackable
from widemargin.fast.tracing import traced
from widemargin.networks.hooks import hooked_as
from widemargin.uncertainty.as_logits import AsLogits
from widemargin.uncertainty.cuts import is_chain
from widemargin.uncertainty.dropout import MCDropout
from widemargin.uncertainty.ensemble import Ensemble
from widemargin.uncertainty.network import Network, in_eval_mode

LOGITS = 1e-4
"""By how much logits may differ, as a share of the largest (at least 1): rounding, in another order of sums."""
GRADIENT = 1e-2
"""By how much the input gradient of a batch may differ, as a share of its norm: a rectifier at 0 may go either way."""
# On how many inputs a copy is compared with the model: each costs as much as a step of an attack.
_ROWS = 2
_WORTH_TRACING = (nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d)


@overload
def accelerated(model: Network, example_inputs: Tensor) -> Network: ...
@overload
def accelerated(model: nn.Module, example_inputs: Tensor) -> nn.Module: ...
def accelerated(model: nn.Module, example_inputs: Tensor) -> nn.Module:
    """A copy in eval mode without parameter gradients, or the model itself if nothing is gained or it cannot be read.

    Where torch.fx can trace it, normalisations are folded into convolutions, 2 x 2 max-pooling is done by slices, a
    5 x 5 convolution before it on blocks of pixels, 3 x 3 convolutions of many channels in tiles, rectifiers in place;
    small MLPs of an ensemble are stacked.  What has hooks, was scripted, or looks at values to decide what to do stays
    as it is.  Before use the copy is compared with the model on a few of the example inputs: logits to LOGITS, their
    gradient to GRADIENT, else the model is returned.  Nothing is timed: what is chosen depends on the model and on how
    many images it gets.

    The copy is of the weights as they are now.
    """
    if not _is_worth_it(model):
        return model
    try:
        quick = _quickened(copy.deepcopy(model).eval().requires_grad_(False))
        return quick if quick is not None and _agree(model, quick, example_inputs[:_ROWS]) else model
    except Exception:
        # A model that cannot be copied, or does not take what the copy takes, is used as it is.
        return model


def _is_worth_it(model: nn.Module) -> bool:
    return any(
        isinstance(module, _WORTH_TRACING) or (isinstance(module, Ensemble) and is_stackable(list(module.members)))
        for module in model.modules()
    )


def _quickened(module: nn.Module) -> nn.Module | None:
    """A faster module that may be over parts of the given one, which is ours; None if there is none."""
    if isinstance(module, Ensemble) and is_stackable(list(module.members)):
        return hooked_as(StackedEnsemble(module), module)
    if isinstance(module, MCDropout):
        # It looks for its dropout layers inside of the head, so the head's own chain must stay.
        return _with_children(module, lambda child: _in_chain(child) if child is module.head else _quickened(child))
    # `AsLogits` takes batches of no points at all, which a graph may not.
    if isinstance(module, Network | nn.ModuleList | AsLogits):
        return _with_children(module, _quickened)
    graph = traced(module)
    return Rewritten(graph) if graph is not None and rewritten(graph) else None


def _in_chain(module: nn.Module) -> nn.Module | None:
    return _with_children(module, _in_chain) if is_chain(module) else _quickened(module)


def _with_children(module: nn.Module, quickened: Callable[[nn.Module], nn.Module | None]) -> nn.Module | None:
    children = {name: quickened(child) for name, child in module.named_children()}
    for name, child in children.items():
        if child is not None:
            setattr(module, name, child)
    return module if any(child is not None for child in children.values()) else None


def _agree(model: nn.Module, quick: nn.Module, inputs: Tensor) -> bool:
    with in_eval_mode(model):
        (logits, gradient), (others, other) = _answer(model, inputs), _answer(quick, inputs)
        with torch.inference_mode():
            again = quick(inputs)
    off = max(float((logits - alike).abs().max()) for alike in (others, again))
    slope = float((gradient - other).norm())
    # Written so that what is not a number does not agree.
    return off <= LOGITS * max(1.0, float(logits.abs().max())) and slope <= GRADIENT * float(gradient.norm())


def _answer(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    points = inputs.detach().clone().requires_grad_()
    with torch.enable_grad():
        logits = model(points)
        # Every logit counts, each by another number.
        weights = torch.linspace(-1.0, 1.0, logits.numel(), dtype=logits.dtype, device=logits.device).cos()
        (gradient,) = torch.autograd.grad((logits * weights.view_as(logits)).sum(), points)
    return logits.detach(), gradient
