"""Parts of an audit that may fail: they are left out and named, since a user's network may raise anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from widemargin.measure.diagnostics import Finding, failed_finding, sentence_of
from widemargin.perturb.attack import Attack, Classifier, Perturbed
from widemargin.perturb.bisected_apgd import BisectedAPGD
from widemargin.perturb.line_search import Nearest
from widemargin.rng import AnyRng, RowRng
from widemargin.shapes import Labels, Points
from widemargin.uncertainty.network import Network

CERTIFICATES = "certificates"
SHORTEST = "minimum-norm"
"""The name of all attacks without a radius, among the others: what they find counts in every ball."""
CHANGE = "change of category"
"""The name, among the attacks, of what needs no change of numbers."""
Failed = dict[str, str]
"""By the name of a part, why it failed."""


def guarded(attacks: Iterable[Attack], failed: Failed) -> tuple[Attack, ...]:
    return tuple(
        GuardedBisected(one.norm, one.box, one.steps, one.trials, failed)
        if isinstance(one, BisectedAPGD)
        else Guarded(one, failed)
        for one in attacks
    )


@dataclass(frozen=True, eq=False)
class Guarded:
    """Where the attack fails it has found nothing, and that is noted."""

    attack: Attack
    failed: Failed

    @property
    def name(self) -> str:
        return self.attack.name

    def __call__(self, model: Network, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        try:
            return self.attack(model, inputs, labels, rng)
        except Exception as problem:
            self.failed.setdefault(self.name, sentence_of(problem))
            delta = torch.zeros_like(inputs)
            return Perturbed(inputs.clone(), delta, delta.flatten(1)[:, 0])


@dataclass(frozen=True, eq=False, repr=False)
class GuardedBisected(BisectedAPGD):
    """The same of the attack that goes on from what others found."""

    failed: Failed | None = None

    def nearer_than(self, known: Nearest, classify: Classifier, labels: Labels, rng: RowRng) -> Points:
        try:
            return super().nearer_than(known, classify, labels, rng)
        except Exception as problem:
            assert self.failed is not None
            self.failed.setdefault(self.name, sentence_of(problem))
            return known.inputs.clone()


def failures(failed: Failed, attacks: Iterable[str]) -> tuple[Finding, ...]:
    """A finding of every part that failed."""
    within = set(attacks)
    return tuple(
        uncertified(why)
        if name == CERTIFICATES
        else failed_finding(name, why, f"it is left out of {'robust accuracy' if name in within else 'the margins'}")
        for name, why in sorted(failed.items())
    )


def uncertified(why: str) -> Finding:
    advice = "nothing, unless you need proofs: robust accuracy and margins do not rest on them"
    return failed_finding(CERTIFICATES, why, "nothing is certified", advice)
