"""What decides a number?  A Run says it all; its key names its folder."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from torch import Generator, nn

from widemargin.data.labelled import Parts
from widemargin.data.toy import Cloud, PointSet
from widemargin.method import Method
from widemargin.networks.mlp import MLP, Widths
from widemargin.perturb.search import Search
from widemargin.plan import Plan
from widemargin.rng import Rng
from widemargin.uncertainty.cuts import Cut, at_input, at_module, before_head


def key_of(*parts: object) -> str:
    """A name for whatever is decided by these; their repr must say it all."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Run:
    data: PointSet
    network: Widths
    method: Method
    plan: Plan
    seed: int

    @property
    def key(self) -> str:
        return key_of(self)

    def build(self) -> MLP:
        """The network as it is before training."""
        return self.network.build(Rng.seeded(self.seed, purpose="weights").generators[0])


class DataSet(Protocol):
    """A frozen description of examples: equal descriptions draw equal examples."""

    def draw(self) -> Cloud | Parts: ...


class Shape(Protocol):
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


@dataclass(frozen=True)
class Validation:
    """How the best weights are chosen: by robust accuracy on the validation part, or clean accuracy without attack."""

    every: int = 1
    """In epochs."""
    attack: Search | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"Validation.every must be a whole number of at least 1 epoch, got {self.every}")


@dataclass(frozen=True)
class Trial:
    """A Run of any data and network, validated on the way: what `widemargin train` does."""

    data: DataSet
    network: Shape
    method: Method
    plan: Plan
    seed: int = 0
    place: Place = AtInput()
    validation: Validation = Validation()

    @property
    def key(self) -> str:
        return key_of(self)

    def build(self) -> nn.Module:
        """The network as it is before training."""
        return self.network.build(Rng.seeded(self.seed, purpose="weights").generators[0])
