"""Last-layer Laplace approximation: a Gaussian posterior of the last layer, whose draws are members."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from widemargin.data.dataset import Examples
from widemargin.rng import Rng
from widemargin.shapes import Encoded, MemberLogits, Points
from widemargin.uncertainty.cuts import Cut
from widemargin.uncertainty.last_layer import pop_last_linear
from widemargin.uncertainty.network import Network, in_eval_mode, no_penalty

_BATCH_SIZE = 500
# Half decades: the evidence is flat on a finer scale.
_PRECISIONS = [10 ** (power / 2) for power in range(-8, 13)]


@final
class LastLayerLaplace(Network):
    """`draws` last layers from N(trained, posterior); everything before is computed once.  Made by `laplace`.

    Draws are stored as offsets from the trained layer: fixed, and the same wherever the network is loaded.
    """

    replicas = 1
    offsets: Tensor

    def __init__(self, cut: Cut, last: nn.Linear, offsets: Float[Tensor, "M C F"]) -> None:
        super().__init__()
        self.encoder, self.body = cut
        self.last = last
        self.draws = len(offsets)
        self.register_buffer("offsets", offsets)

    def encode(self, inputs: Points) -> Encoded:
        return self.encoder(inputs)  # type: ignore[no-any-return]

    def logits(self, encoded: Encoded) -> MemberLogits:
        features = self.body(encoded)
        return self.last(features) + with_one(features) @ self.offsets.mT  # type: ignore[no-any-return]

    def penalty(self) -> Tensor:
        return no_penalty(self)


@dataclass(frozen=True)
class Posterior:
    """H = A x G + precision I, the Kronecker-factored Gauss-Newton matrix of the last layer, by its eigenvectors.

    A = sum of f f' / n over features with a 1 for the bias, G = sum of diag p - p p' (Ritter et al. 2018; exact where
    all points have the same p, or all the same features).
    """

    feature_axes: Float[Tensor, "F F"]
    feature_curvature: Float[Tensor, " F"]
    class_axes: Float[Tensor, "C C"]
    class_curvature: Float[Tensor, " C"]
    precision: float

    def draws(self, count: int, rng: Rng) -> Float[Tensor, "M C F"]:
        noise = rng.normal(
            torch.empty(count, len(self.class_curvature), len(self.feature_curvature), dtype=torch.float64)
        )
        scaled = noise / _spectrum(self, self.precision).sqrt()
        return self.class_axes @ scaled @ self.feature_axes.mT


def laplace(
    cut: Cut, examples: Examples, draws: int, precision: float | None = None, seed: int = 0
) -> LastLayerLaplace:
    """A trained network, cut in two, and the examples it was trained on (Daxberger et al. 2021).  It is copied.

    `precision` is that of the Gaussian prior on the last layer's weights; None takes the one with the most evidence.
    Our own because it is sixty lines: the packages that do it bring their own loops, likelihoods and dependencies.
    """
    if draws < 1:
        raise ValueError(f"draws must be a whole number of at least 1, got {draws}")
    if precision is not None and not 0 < precision < math.inf:
        raise ValueError(f"precision must be in (0, inf), got {precision}")
    # Copied together: halves may share parameters.
    encoder, head = copy.deepcopy(nn.ModuleList(cut))
    body = nn.Sequential(head)
    last = pop_last_linear(body)
    _check_was_last(cut, Cut(encoder, body), last, examples)
    posterior = _posterior(encoder, body, last, examples, precision)
    offsets = posterior.draws(draws, Rng.seeded(seed, purpose="last layer"))
    network = LastLayerLaplace(Cut(encoder, body), last, offsets.to(last.weight))
    return network.train(cut.head.training)


def with_one(features: Tensor) -> Tensor:
    return torch.cat([features, features.new_ones(features.shape[0], 1)], 1)


def _check_was_last(cut: Cut, stripped: Cut, last: nn.Linear, examples: Examples) -> None:
    points = examples[torch.arange(min(4, len(examples)))][0]
    with torch.no_grad(), in_eval_mode(nn.ModuleList([*cut, *stripped, last])):
        before, after = cut.head(cut.encoder(points)), stripped.head(stripped.encoder(points))
        same = after.ndim == 2 and after.shape[1] == last.in_features and torch.allclose(last(after), before)
    if not same:
        raise ValueError("the network must end in its last nn.Linear, got other layers behind it: cut those off")


@torch.no_grad()
def _posterior(
    encoder: nn.Module, body: nn.Module, last: nn.Linear, examples: Examples, precision: float | None
) -> Posterior:
    """In double precision: small eigenvalues decide how far a draw goes."""
    sides = last.in_features + 1, last.out_features
    features, classes = (torch.zeros(side, side, dtype=torch.float64) for side in sides)
    log_likelihood = 0.0
    with in_eval_mode(nn.ModuleList([encoder, body])):
        for rows in torch.arange(len(examples)).split(_BATCH_SIZE):
            inputs, labels = examples[rows]
            seen = body(encoder(inputs))
            log_probs = last(seen).double().log_softmax(-1).cpu()
            seen, probs = with_one(seen.double().cpu()), log_probs.exp()
            features += seen.mT @ seen
            classes += probs.sum(0).diag() - probs.mT @ probs
            log_likelihood += float(log_probs.gather(1, labels.cpu().unsqueeze(1)).sum())
    feature_curvature, feature_axes = torch.linalg.eigh(features / len(examples))
    class_curvature, class_axes = torch.linalg.eigh(classes)
    posterior = Posterior(
        feature_axes, feature_curvature.clamp_min(0), class_axes, class_curvature.clamp_min(0), precision or 1.0
    )
    if precision is not None:
        return posterior
    bias = torch.zeros(len(last.weight), 0) if last.bias is None else last.bias.unsqueeze(1)
    size = float(torch.cat([last.weight, bias.to(last.weight)], 1).double().square().sum())
    best = max(_PRECISIONS, key=lambda given: log_likelihood + _log_prior_and_volume(posterior, given, size))
    return replace(posterior, precision=best)


def _log_prior_and_volume(posterior: Posterior, precision: float, size: float) -> float:
    """Of the log evidence, what depends on the precision: (P log t - t |w|^2 - log det H) / 2 (MacKay 1992)."""
    spectrum = _spectrum(posterior, precision)
    return 0.5 * (spectrum.numel() * math.log(precision) - precision * size - float(spectrum.log().sum()))


def _spectrum(posterior: Posterior, precision: float) -> Float[Tensor, "C F"]:
    return posterior.class_curvature.unsqueeze(1) * posterior.feature_curvature + precision
