"""What an audit measures of a chunk of points: answers, certificates, margins, and which attack breaks them where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from widemargin.auditing.categories import worst_of_changes
from widemargin.auditing.chunks import Chunk
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.guarded import CERTIFICATES, SHORTEST, Failed, guarded
from widemargin.auditing.pace import PROOF, listening
from widemargin.auditing.result import Array
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Subset
from widemargin.measure.accuracy import BATCH_SIZE, iter_batches
from widemargin.measure.certified import certified_radius
from widemargin.measure.curve import Curve, Refuted, robustness
from widemargin.measure.diagnostics import sentence_of
from widemargin.measure.distance import NO_ATTACK, distances
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import Ball
from widemargin.perturb.suites import starts_of
from widemargin.shapes import PerSample, Points
from widemargin.uncertainty.network import in_eval_mode

Certify = Callable[..., PerSample]
"""Called as `certified_radius` is."""
OnAnswers = Callable[[int], None]
"""Called with the number of answers of each pass."""


def measured_chunk(
    target: AuditTarget,
    config: AuditConfig,
    rows: Tensor,
    certify: Certify | None = certified_radius,
    on_answers: OnAnswers = lambda answers: None,
) -> Chunk:
    """Everything that is saved of these points; without certificates if `certify` is None."""
    failed = Failed()
    try:
        points = _Measuring(target, config, certify, on_answers, failed).worst(Subset(target.examples, rows))
    except Exception as problem:
        raise ValueError(_fails(sentence_of(problem))) from problem
    within = {attack.name for attack in attacks_within(target, config, config.balls[0])}
    if within <= set(failed):
        raise ValueError(_fails(next(iter(failed.values()))))
    return Chunk(points, failed)


def attacks_within(target: AuditTarget, config: AuditConfig, ball: Ball) -> tuple[Attack, ...]:
    eot = target.eot
    return eot.within(config.standard(ball, target.classes, eot.rows_at_once), ball)


def unattacked(target: AuditTarget, examples: Subset) -> dict[str, Array]:
    """The answers alone."""
    network = target.eot.network
    with torch.no_grad(), in_eval_mode(network):
        parts = [(labels, network(inputs).argmax(-1)) for _, inputs, labels in iter_batches(examples, BATCH_SIZE)]
    labels, answers = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
    unknown = np.full(len(labels), np.nan)
    return {
        "row": examples.rows.numpy(),
        "label": labels,
        "answer": answers,
        "breaks": np.zeros(len(labels), dtype=np.int64),
        "by": np.full(len(labels), NO_ATTACK),
        "margin": np.where(answers == labels, unknown, 0.0),
        "certified": unknown,
    }


def _fails(why: str) -> str:
    return (
        f"the network must answer wherever it is asked, but failed while points were attacked ({why}): what was "
        "measured before is saved, and the same command continues from there"
    )


@dataclass(frozen=True, eq=False)
class _Measuring:
    """How points are measured; what fails on the way is noted in `failed`."""

    target: AuditTarget
    config: AuditConfig
    certify: Certify | None
    on_answers: OnAnswers
    failed: Failed

    def worst(self, examples: Subset) -> dict[str, Array]:
        """If categories may change, of all that each point may become."""
        categories = self.config.categories
        if categories is None:
            return self.measured(examples)
        number = len(attacks_within(self.target, self.config, self.config.balls[0])) + 1
        return worst_of_changes(self.target.eot.network, examples, categories, self.measured, number)

    def measured(self, examples: Subset) -> dict[str, Array]:
        network, balls = self.target.eot.network, self.config.balls
        inputs, labels = examples[torch.arange(len(examples))]
        with torch.no_grad(), in_eval_mode(network):
            answers = network(inputs).argmax(-1)
        proven = self._proven(examples)
        places, distance = inputs, torch.where(answers == labels, torch.inf, 0.0).cpu().double()
        with listening(self.on_answers, network, self.target.eot.climbed):
            try:
                places, distance = self._nearest(examples, inputs)
            except Exception as problem:
                self.failed[SHORTEST] = sentence_of(problem)
            try:
                known = self._curve(examples, None if proven.isnan().any() else proven, distance).points
            except Refuted as problem:
                self.failed[CERTIFICATES], proven = str(problem), _unknown(examples)
                known = self._curve(examples, None, distance).points
        # Whom no attack within a ball had to break was broken by those without a radius, which come last in the list.
        without = (known.by == NO_ATTACK) & (known.breaks < len(balls)) & (distance > 0)
        by = torch.where(without, len(attacks_within(self.target, self.config, balls[-1])), known.by)
        return {
            "row": examples.rows.numpy(),
            "label": labels.cpu().numpy(),
            "answer": answers.cpu().numpy(),
            "breaks": known.breaks.numpy(),
            "by": by.numpy(),
            "tried": known.tried.numpy(),
            "margin": distance.minimum(known.distance.cpu()).numpy(),
            "place": places.cpu().numpy(),
            "way": distance.numpy(),
            "certified": proven.numpy(),
        }

    def _proven(self, examples: Subset) -> PerSample:
        """How far each point is proven; not known without certificates, or where they fail."""
        if self.certify is None:
            return _unknown(examples)
        network, largest = self.target.eot.network, self.config.balls[-1]
        try:
            return self.certify(network, examples, largest, on_progress=lambda done: self.on_answers(PROOF)).cpu()
        except Exception as problem:
            self.failed[CERTIFICATES] = sentence_of(problem)
            return _unknown(examples)

    def _nearest(self, examples: Subset, inputs: Points) -> tuple[Points, PerSample]:
        """By the attacks without a radius: where each point is misclassified, and how far that is."""
        eot, config, largest = self.target.eot, self.config, self.config.balls[-1]
        norm = type(largest)
        attacks = config.shortest(norm, largest.box, self.target.classes, eot.rows_at_once, starts_of(inputs))
        shortest = guarded(eot.shortest(attacks, largest), self.failed)
        nearest = distances(eot.network, examples, norm, largest.box, shortest, config.seed, eot.rows_at_once)
        return nearest.places.detach(), nearest.distance.cpu().double()

    def _curve(self, examples: Subset, known_below: PerSample | None, distance: PerSample) -> Curve:
        return robustness(
            self.target.eot.network,
            examples,
            self.config.balls,
            lambda ball: guarded(attacks_within(self.target, self.config, ball), self.failed),
            known_below=known_below,
            known_above=torch.where(distance > 0, distance, torch.inf),
            seed=self.config.seed,
            rows=self.target.eot.rows_at_once,
        )


def _unknown(examples: Subset) -> PerSample:
    return torch.full((len(examples),), torch.nan, dtype=torch.float64)
