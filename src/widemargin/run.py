"""What decides a number?  A Run says it all; its key names its folder."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from widemargin.data.toy import PointSet
from widemargin.method import Method
from widemargin.networks.mlp import MLP, Widths
from widemargin.plan import Plan
from widemargin.rng import Rng


@dataclass(frozen=True)
class Run:
    data: PointSet
    network: Widths
    method: Method
    plan: Plan
    seed: int

    @property
    def key(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def build(self) -> MLP:
        """The network as it is before training."""
        return self.network.build(Rng.seeded(self.seed, purpose="weights").generators[0])
