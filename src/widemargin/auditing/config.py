"""What an audit measures: how many points, in which balls, by which attacks and diagnoses."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from widemargin.measure.diagnostics import DIAGNOSES, Diagnosis
from widemargin.measure.surrogate import UPDATES
from widemargin.perturb import suites
from widemargin.perturb.balls import Ball
from widemargin.perturb.categories import CategoryChanges
from widemargin.perturb.suites import ShortestSuite, Suite


@dataclass(frozen=True, repr=False)
class AuditConfig:
    """Of how many points, in which balls, all of one norm and growing."""

    balls: tuple[Ball, ...]
    points: int = 1_000
    seed: int = 0
    chunk: int = 100
    """Points that are attacked together, and saved together: more are quicker, fewer lose less."""
    standard: Suite = suites.standard
    """The attacks in each ball."""
    shortest: ShortestSuite = suites.shortest
    """The attacks for the margins."""
    diagnoses: tuple[Diagnosis, ...] = DIAGNOSES
    """In this order, those first that there is always time for."""
    surrogate_updates: int = UPDATES
    """For how many updates the surrogate is fitted from which examples are transferred."""
    categories: CategoryChanges | None = None
    """Changes of category that come before those of a ball; None if there are none."""

    def __post_init__(self) -> None:
        if not self.balls:
            raise ValueError("an audit needs at least 1 radius, got none")
        if not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"the seed must be a whole number from -2^63 to 2^63 - 1, got {self.seed}")
        if self.categories is not None:
            self.categories.check_box(self.balls[0].box)
        if self.points < 1:
            raise ValueError(f"the number of points (--points) must be at least 1, got {self.points}")
        if self.chunk < 1:
            raise ValueError(f"chunk, the points that are attacked together, must be at least 1, got {self.chunk}")

    def __repr__(self) -> str:
        """An audit is saved under a key made of this: what suites are by default is not said, so that keys stay."""
        usual = {
            "standard": suites.standard,
            "shortest": suites.shortest,
            "diagnoses": DIAGNOSES,
            "surrogate_updates": UPDATES,
            "categories": None,
        }
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        said = [f"{name}={value!r}" for name, value in values.items() if name not in usual or value != usual[name]]
        return f"AuditConfig({', '.join(said)})"

    def chunks(self, rows: int) -> list[Tensor]:
        """Row numbers, in an order that the seed decides: wherever an audit ends, it has seen a fair sample."""
        return list(self.sample(rows).split(self.chunk))

    def sample(self, rows: int) -> Tensor:
        return self.order(rows)[: self.points]

    def order(self, rows: int) -> Tensor:
        return torch.randperm(rows, generator=torch.Generator().manual_seed(self.seed))
