"""Fits of a scaling of the logits (temperature or vector) by likelihood, on examples that were not trained on."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from widemargin.data.dataset import Examples
from widemargin.measure.calibration import member_logits
from widemargin.shapes import Labels
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.scaling import Kind, Scaling, common_logits, is_drawn

_UPDATES = 500


def fit_scaling(network: Network, examples: Examples, kind: Kind = "temperature") -> Scaling:
    """Of the examples, which should not have been trained on, the labels' likelihood is maximised.

    The network is unchanged; `Scaled(network, scaling)` is one with the scaling.
    """
    logits = common_logits(member_logits(network, examples), is_drawn(network))
    return scaling_of(logits, examples.labels.cpu(), kind)


def scaling_of(logits: Tensor, labels: Labels, kind: Kind = "temperature") -> Scaling:
    """The fit to logits [rows, classes].  Likelihood is concave in weights and biases, so that it is the best."""
    _check_bounded(logits, labels, kind)
    logits, classes = logits.double(), logits.shape[1]
    weight = torch.ones(1 if kind == "temperature" else classes, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, requires_grad=kind == "vector")
    optimizer = torch.optim.LBFGS(
        [one for one in (weight, bias) if one.requires_grad],
        max_iter=_UPDATES,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def loss() -> float:
        optimizer.zero_grad()
        value = cross_entropy(weight * logits + bias, labels)
        value.backward()
        return float(value.detach())

    optimizer.step(loss)
    if bool(((weight * logits + bias).detach().argmax(-1) == labels).all()):
        raise ValueError(
            f"a {kind} scaling of {len(labels)} validation examples has no best fit, since one classifies all of them "
            "correctly, and more confidence is then always likelier: give more validation examples"
            + (", or fit a temperature" if kind == "vector" else "")
        )
    if kind == "temperature" and not float(weight.detach()) > 0:
        raise ValueError(
            "a temperature fits only a network that is better than chance, but on these examples the likelihood is "
            "highest where all classes are equally likely: train it longer"
        )
    # A bias for all classes alike changes nothing.
    centred = (bias - bias.mean()).detach()
    return Scaling(kind, tuple(weight.detach().expand(classes).tolist()), tuple(centred.tolist()))


def _check_bounded(logits: Tensor, labels: Labels, kind: Kind) -> None:
    """The likelihood must have a maximum."""
    if bool((logits.argmax(-1) == labels).all()):
        raise ValueError(
            f"a scaling cannot be fitted where all {len(labels)} validation examples are classified correctly, since "
            "the likelihood rises with the confidence without end: give more validation examples"
        )
    missing = sorted(set(range(logits.shape[1])) - set(labels.tolist()))
    if kind == "vector" and missing:
        raise ValueError(
            f"a vector scaling needs validation examples of every class, got none of class {missing[0]}: give more, or "
            "fit a temperature"
        )
