"""The Run: everything that decides the numbers of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Generator, nn

from widemargin.data.dataset import Dataset, Splits
from widemargin.method import Method
from widemargin.parts import part
from widemargin.perturb.categories import WithCategoryChanges
from widemargin.perturb.search import Search
from widemargin.rng import Rng
from widemargin.runs.keys import key_of, older_keys
from widemargin.training.plan import Plan
from widemargin.uncertainty.estimators import AtInput, Estimator, Place, SingleSpec

_AT_INPUT, _SINGLE = AtInput(), SingleSpec()


class DataSpec(Protocol):
    """A frozen description of examples: equal descriptions draw equal examples."""

    def draw(self) -> Dataset | Splits: ...


class NetworkSpec(Protocol):
    """A frozen description of a network and of how its first weights are drawn."""

    def build(self, rng: Generator) -> nn.Module: ...


@part
@dataclass(frozen=True)
class Validation:
    """How the best weights are chosen: by robust accuracy on the validation part, or clean accuracy without attack."""

    every: int = 1
    """In epochs."""
    attack: Search | WithCategoryChanges | None = None
    watched: tuple[tuple[str, Search], ...] = ()
    """Accuracy under these is recorded too, by name; it decides nothing."""

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"Validation.every must be a whole number of at least 1 epoch, got {self.every}")


@part
@dataclass(frozen=True)
class Run:
    """A training, from its data to the choice of the best weights: what `widemargin train` does."""

    data: DataSpec
    network: NetworkSpec
    method: Method
    plan: Plan
    seed: int = 0
    place: Place = _AT_INPUT
    validation: Validation = Validation()
    estimator: Estimator = _SINGLE

    @property
    def key(self) -> str:
        """The name of its folder."""
        return key_of(self)

    @property
    def older_keys(self) -> tuple[str, ...]:
        """The names that its folder has if it was begun by an earlier version."""
        return older_keys(self)

    def build(self, member: int = 0) -> nn.Module:
        """One plain network as it is before training."""
        return build_network(self.network, self.seed, member)


def build_network(network: NetworkSpec, seed: int, member: int = 0) -> nn.Module:
    """With first weights that follow the seed; those of the first member are those of a single network."""
    purpose = f"weights of member {member}" if member else "weights"
    return network.build(Rng.seeded(seed, purpose=purpose).generators[0])
