"""Networks for export: tensors and elementary operators, without parametrizations, gpytorch or random draws."""

from __future__ import annotations

import copy
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from widemargin.shapes import LogProbs, Points
from widemargin.uncertainty.deep_kernel import DeepKernel
from widemargin.uncertainty.predictive import log_mean_prob


def plain(network: nn.Module) -> nn.Module:
    """A copy that computes what the network does in eval mode: parametrized weights and kernels become constants."""
    copied = copy.deepcopy(network)
    for layer in copied.modules():
        if parametrize.is_parametrized(layer):
            _settle(layer)
    # One may stand behind the encoding of a table's rows.
    for parent in list(copied.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, DeepKernel):
                parent.add_module(name, PlainKernel(child))
    return PlainKernel(copied) if isinstance(copied, DeepKernel) else copied


def _settle(layer: nn.Module) -> None:
    """Not torch's remove_parametrizations, which takes the weights of the layer's uncopied original away too."""
    weights = [
        # Exported weights are not trained; buffers stay buffers.
        (name, getattr(layer, name).detach(), any(True for _ in originals.parameters(recurse=False)))
        for name, originals in layer.parametrizations.items()  # type: ignore[operator, union-attr]
    ]
    layer.__class__ = parametrize.type_before_parametrizations(layer)
    del layer.parametrizations
    for name, value, parameter in weights:
        if parameter:
            layer.register_parameter(name, nn.Parameter(value, requires_grad=False))
        else:
            layer.register_buffer(name, value)


@final
class PlainKernel(nn.Module):
    """A deep kernel for inference: whatever does not depend on the point is precomputed, its draws are fixed.

    With `near` the unscaled kernel between points and inducing points, and in the letters of `marginals`, the rest is
    mean = c + near (s L^-T m) and variance = prior - |near (s L^-T)|^2 + |near (s L^-T S)|^2.
    """

    places: Tensor
    half_precision: Tensor
    to_mean: Tensor
    to_seen: Tensor
    to_spread: Tensor
    constant: Tensor
    prior: Tensor
    noise: Tensor

    @torch.no_grad()
    def __init__(self, kernel: DeepKernel) -> None:
        super().__init__()
        self.encoder, self.features = kernel.encoder, kernel.features
        self.training = kernel.training
        process: Any = kernel.process
        strategy, jitter = process.variational_strategy, process.variational_strategy.jitter_val
        values = strategy._variational_distribution
        # In double precision: many inducing points are nearly the same, and here distances are differences of products.
        places, scale = strategy.inducing_points.double(), process.kernel.outputscale.double()[:, None, None]
        half_precision = 0.5 / process.kernel.base_kernel.lengthscale.double().square()
        eye = torch.eye(places.shape[1]).to(places).expand(len(places), -1, -1)
        factor = torch.linalg.cholesky(scale * _near(places, places, half_precision) + jitter * eye)
        to_seen = scale * torch.linalg.solve_triangular(factor.mT, eye, upper=True)
        constants = {
            "places": places,
            "half_precision": half_precision,
            "to_mean": to_seen @ values.variational_mean.double()[:, :, None],
            "to_seen": to_seen,
            "to_spread": to_seen @ values.chol_variational_covar.double().tril(),
            "constant": process.mean.constant.double()[:, None],
            "prior": scale[:, 0] + jitter,
            "noise": kernel.fixed_noise(scale[:, 0]),
        }
        for name, value in constants.items():
            # No views: whole tensors of their own are what a file is made of.
            self.register_buffer(name, value.clone(memory_format=torch.contiguous_format))

    def forward(self, inputs: Points) -> LogProbs:
        features: Tensor = self.features(self.encoder(inputs))
        near = _near(features.double(), self.places, self.half_precision)
        mean = self.constant + (near @ self.to_mean).squeeze(-1)
        variance = self.prior - (near @ self.to_seen).square().sum(-1) + (near @ self.to_spread).square().sum(-1)
        members = mean + variance.clamp_min(0).add(1e-12).sqrt() * self.noise
        return log_mean_prob(members.mT.to(features.dtype))


def _near(points: Tensor, places: Tensor, half_precision: Tensor) -> Float[Tensor, "C B Z"]:
    """The unscaled kernel by products alone, which every runtime has."""
    sizes, others = (value.square().sum(-1) for value in (points, places))
    squared = sizes[..., None] + others[:, None] - 2 * points @ places.mT
    return (-half_precision * squared).exp()
