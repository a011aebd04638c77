"""What decides a number?  A Run says it all; its key names its folder."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from widemargin.data.toy import PointSet
from widemargin.method import Method
from widemargin.networks.mlp import MLP, Widths
from widemargin.plan import Plan
from widemargin.rng import Rng


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
