"""Descriptions of estimators (which members a trained network has) and of the place where points are perturbed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from widemargin.data.dataset import Examples
from widemargin.networks.spectral import bounded
from widemargin.parts import choice, part
from widemargin.rng import Rng
from widemargin.uncertainty.cuts import Cut, at_input, at_module, before_head
from widemargin.uncertainty.deep_kernel import DeepKernel, first_places, gaussian_process
from widemargin.uncertainty.drawn import SAME, Renewal
from widemargin.uncertainty.dropout import EVERY, MCDropout, Over
from widemargin.uncertainty.ensemble import Ensemble
from widemargin.uncertainty.last_layer import pop_last_linear
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.single import Single


class Place(Protocol):
    """Where points are perturbed while a network trains."""

    def cut(self, network: nn.Module) -> Cut: ...


@part
@dataclass(frozen=True)
class AtInput:
    def cut(self, network: nn.Module) -> Cut:
        return at_input(network)


@part
@dataclass(frozen=True)
class BeforeHead:
    """In the latent space of Sec. 5.1.2."""

    def cut(self, network: nn.Module) -> Cut:
        return before_head(network)


@part
@dataclass(frozen=True)
class AtModule:
    """In what the submodule of this name returns."""

    name: str

    def cut(self, network: nn.Module) -> Cut:
        return at_module(network, self.name)


class Estimator(Protocol):
    """A frozen description of the members of the network that is trained."""

    def network(self, build: Callable[[int], nn.Module], place: Place, examples: Examples | None) -> Network:
        """From plain networks, each a number; without examples only its shapes are right, and weights can be loaded."""
        ...


@part
@dataclass(frozen=True)
class SingleSpec:
    def network(self, build: Callable[[int], nn.Module], place: Place, examples: Examples | None) -> Network:
        return Single(place.cut(build(0)))


@choice("estimator", "members")
@dataclass(frozen=True)
class EnsembleSpec:
    """A deep ensemble, trained jointly on the same batches from different first weights (Lakshminarayanan 2017)."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 2:
            raise ValueError(f"EnsembleSpec.count must be a whole number of at least 2, got {self.count}")

    def network(self, build: Callable[[int], nn.Module], place: Place, examples: Examples | None) -> Network:
        if place != AtInput():
            raise ValueError(f"members have latent spaces of their own, so inputs must be perturbed, got {place}")
        return Ensemble([build(number) for number in range(self.count)])


@choice("estimator", "dropout_draws")
@dataclass(frozen=True)
class MCDropoutSpec:
    """The network must have dropout layers; `draws` sets of their masks answer."""

    draws: int
    renewal: Renewal = SAME
    over: Over = EVERY

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError(f"MCDropoutSpec.draws must be a whole number of at least 1, got {self.draws}")

    def network(self, build: Callable[[int], nn.Module], place: Place, examples: Examples | None) -> Network:
        return MCDropout(place.cut(build(0)), self.draws, self.renewal, self.over)


@choice("estimator", "deep_kernel")
@dataclass(frozen=True)
class DeepKernelSpec:
    """The last linear layer gives way to a Gaussian process; all others are spectrally normalised (App. D.4, DUE)."""

    inducing: int = 20
    draws: int = 10
    coefficient: float = 3.0
    """The most that a layer stretches; a ResidualMLPSpec has one of its own."""
    renewal: Renewal = SAME

    def __post_init__(self) -> None:
        if self.inducing < 1 or self.draws < 1 or not self.coefficient > 0:
            raise ValueError(f"inducing and draws must be at least 1 and coefficient > 0, got {self}")

    def network(self, build: Callable[[int], nn.Module], place: Place, examples: Examples | None) -> Network:
        whole = build(0)
        cut = place.cut(whole)
        cut = Cut(cut.encoder, nn.Sequential(cut.head))
        last = pop_last_linear(cut.head)
        for half in cut:
            bounded(half, self.coefficient)
        if examples is None:
            centers, length, rows = torch.zeros(self.inducing, last.in_features), 1.0, 1
        else:
            centers, length = self._places(cut, examples)
            rows = len(examples)
        process = gaussian_process(centers, last.out_features, length)
        return DeepKernel(cut, process, rows, self.draws, self.renewal)

    def _places(self, cut: Cut, examples: Examples) -> tuple[torch.Tensor, float]:
        """From a thousand training points, as the first update sees them."""
        rng = Rng.seeded(0, purpose="inducing points")
        rows = rng.permutations(len(examples))[0, :1000]
        device = next(nn.ModuleList(cut).parameters()).device
        # Of a copy, whose batch-norm takes the batch's statistics: those it would remember are of no data yet.
        first = nn.ModuleList(copy.deepcopy(list(cut)))
        for layer in first.modules():
            layer.training = isinstance(layer, nn.modules.batchnorm._BatchNorm)
        encoder, head = first
        with torch.no_grad():
            features = head(encoder(examples[rows][0].to(device)))
        return first_places(features, self.inducing, rng)
