"""What decides a number?  A Run says it all; its key names its folder."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Generator, nn

from widemargin.data.dataset import Dataset, Examples, Splits
from widemargin.data.toy import PointSet
from widemargin.method import Method
from widemargin.networks.mlp import MLP, MLPSpec
from widemargin.networks.spectral import bounded
from widemargin.perturb.search import Search
from widemargin.rng import Rng
from widemargin.training.plan import SGD, Descent, Plan, repr_with
from widemargin.uncertainty.cuts import Cut, at_input, at_module, before_head
from widemargin.uncertainty.deep_kernel import DeepKernel, first_places, gaussian_process
from widemargin.uncertainty.drawn import SAME, Renewal
from widemargin.uncertainty.dropout import EVERY, MCDropout, Over
from widemargin.uncertainty.ensemble import Ensemble
from widemargin.uncertainty.last_layer import pop_last_linear
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.single import Single

_NUMBERS = 2
"""Counted up whenever the same parts give other numbers: 2 keeps the last, smaller batch of an epoch."""
_NUMBERS_OF = {"ResNetSpec": 2}
"""The same for one part alone, so that runs without it keep their keys.

ResNetSpec: 2 has no normalisation after the last stage, bypasses that take the raw input, and He's linear layer.
"""


def key_of(*parts: object) -> str:
    """A name for whatever is decided by these; their repr must say it all."""
    said = repr(parts)
    for name, number in _NUMBERS_OF.items():
        said = re.sub(rf"\b{name}\(", f"{name} {number}(", said)
    return hashlib.sha256(f"{_NUMBERS} {said}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Run:
    data: PointSet
    network: MLPSpec
    method: Method
    plan: Plan
    seed: int

    @property
    def key(self) -> str:
        return key_of(self)

    def build(self) -> MLP:
        """The network as it is before training."""
        return self.network.build(Rng.seeded(self.seed, purpose="weights").generators[0])


class DataSpec(Protocol):
    """A frozen description of examples: equal descriptions draw equal examples."""

    def draw(self) -> Dataset | Splits: ...


class NetworkSpec(Protocol):
    """A frozen description of a network and of how its first weights are drawn."""

    def build(self, rng: Generator) -> nn.Module: ...


class Place(Protocol):
    """Where points are perturbed while a network trains."""

    def cut(self, network: nn.Module) -> Cut: ...


@dataclass(frozen=True)
class AtInput:
    def cut(self, network: nn.Module) -> Cut:
        return at_input(network)


@dataclass(frozen=True)
class BeforeHead:
    """In the latent space of Sec. 5.1.2."""

    def cut(self, network: nn.Module) -> Cut:
        return before_head(network)


@dataclass(frozen=True)
class AtModule:
    """In what the submodule of this name returns."""

    name: str

    def cut(self, network: nn.Module) -> Cut:
        return at_module(network, self.name)


class Estimator(Protocol):
    """Who are the members of the network that is trained?"""

    def network(self, build: Callable[[int], nn.Module], place: Place, examples: Examples | None) -> Network:
        """From plain networks, each a number; without examples only its shapes are right, and weights can be loaded."""
        ...


@dataclass(frozen=True)
class SingleSpec:
    def network(self, build: Callable[[int], nn.Module], place: Place, examples: Examples | None) -> Network:
        return Single(place.cut(build(0)))


@dataclass(frozen=True)
class EnsembleSpec:
    """A deep ensemble, trained jointly on the same batches from different first weights (Lakshminarayanan 2017)."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 2:
            raise ValueError(f"Members.count must be a whole number of at least 2, got {self.count}")

    def network(self, build: Callable[[int], nn.Module], place: Place, examples: Examples | None) -> Network:
        if place != AtInput():
            raise ValueError(f"members have latent spaces of their own, so inputs must be perturbed, got {place}")
        return Ensemble([build(number) for number in range(self.count)])


def jointly(descent: Descent, members: int) -> Descent:
    """The descent under which members that are trained jointly move as each would alone.

    Their loss is a mean, so each has 1 / M of its gradient.  Adam's step does not depend on that; SGD needs M times the
    rate, and 1 / M of the weight decay that the rate multiplies.
    """
    if not isinstance(descent, SGD):
        return descent
    return replace(descent, lr=descent.lr * members, weight_decay=descent.weight_decay / members)


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


@dataclass(frozen=True, repr=False)
class Validation:
    """How the best weights are chosen: by robust accuracy on the validation part, or clean accuracy without attack."""

    every: int = 1
    """In epochs."""
    attack: Search | None = None
    watched: tuple[tuple[str, Search], ...] = ()
    """Accuracy under these is recorded too, by name; it decides nothing."""

    def __repr__(self) -> str:
        return repr_with(self, "every", "attack")

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"Validation.every must be a whole number of at least 1 epoch, got {self.every}")


@dataclass(frozen=True, repr=False)
class Trial:
    """A Run of any data and network, validated on the way: what `widemargin train` does."""

    data: DataSpec
    network: NetworkSpec
    method: Method
    plan: Plan
    seed: int = 0
    place: Place = AtInput()
    validation: Validation = Validation()
    members: Estimator = SingleSpec()

    def __repr__(self) -> str:
        return repr_with(self, "data", "network", "method", "plan", "seed", "place", "validation")

    @property
    def key(self) -> str:
        return key_of(self)

    def build(self, member: int = 0) -> nn.Module:
        """One plain network as it is before training."""
        purpose = f"weights of member {member}" if member else "weights"
        return self.network.build(Rng.seeded(self.seed, purpose=purpose).generators[0])
