"""What an audit measures of a chunk of points: answers, certificates, margins, and which attack breaks them where."""

from __future__ import annotations

from collections.abc import Callable

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
        points = _worst(target, config, Subset(target.examples, rows), certify, on_answers, failed)
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


def _worst(
    target: AuditTarget,
    config: AuditConfig,
    examples: Subset,
    certify: Certify | None,
    on_answers: OnAnswers,
    failed: Failed,
) -> dict[str, Array]:
    """If categories may change, of all that each point may become."""

    def measure(some: Subset) -> dict[str, Array]:
        return _measured(target, config, some, certify, on_answers, failed)

    if config.categories is None:
        return measure(examples)
    number = len(attacks_within(target, config, config.balls[0])) + 1
    return worst_of_changes(target.eot.network, examples, config.categories, measure, number)


def _measured(
    target: AuditTarget,
    config: AuditConfig,
    examples: Subset,
    certify: Certify | None,
    on_answers: OnAnswers,
    failed: Failed,
) -> dict[str, Array]:
    network = target.eot.network
    inputs, labels = examples[torch.arange(len(examples))]
    with torch.no_grad(), in_eval_mode(network):
        answers = network(inputs).argmax(-1)
    unknown = torch.full((len(examples),), torch.nan, dtype=torch.float64)
    proven = unknown
    if certify is not None:
        try:
            proven = certify(network, examples, config.balls[-1], on_progress=lambda done: on_answers(PROOF)).cpu()
        except Exception as problem:
            failed[CERTIFICATES] = sentence_of(problem)
    places, distance = inputs, torch.where(answers == labels, torch.inf, 0.0).cpu().double()
    with listening(on_answers, network, target.eot.climbed):
        try:
            places, distance = _nearest(target, config, examples, inputs, failed)
        except Exception as problem:
            failed[SHORTEST] = sentence_of(problem)
        try:
            known = _curve(target, config, examples, None if proven.isnan().any() else proven, distance, failed).points
        except Refuted as problem:
            failed[CERTIFICATES], proven = str(problem), unknown
            known = _curve(target, config, examples, None, distance, failed).points
    # Whom no attack within a ball had to break was broken by those without a radius, which come last in the list.
    without = (known.by == NO_ATTACK) & (known.breaks < len(config.balls)) & (distance > 0)
    by = torch.where(without, len(attacks_within(target, config, config.balls[-1])), known.by)
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


def _nearest(
    target: AuditTarget, config: AuditConfig, examples: Subset, inputs: Points, failed: Failed
) -> tuple[Points, PerSample]:
    """By the attacks without a radius: where each point is misclassified, and how far that is."""
    eot, largest = target.eot, config.balls[-1]
    norm = type(largest)
    attacks = config.shortest(norm, largest.box, target.classes, eot.rows_at_once, starts_of(inputs))
    shortest = guarded(eot.shortest(attacks, largest), failed)
    nearest = distances(eot.network, examples, norm, largest.box, shortest, config.seed, eot.rows_at_once)
    return nearest.places.detach(), nearest.distance.cpu().double()


def _curve(
    target: AuditTarget,
    config: AuditConfig,
    examples: Subset,
    known_below: PerSample | None,
    distance: PerSample,
    failed: Failed,
) -> Curve:
    return robustness(
        target.eot.network,
        examples,
        config.balls,
        lambda ball: guarded(attacks_within(target, config, ball), failed),
        known_below=known_below,
        known_above=torch.where(distance > 0, distance, torch.inf),
        seed=config.seed,
        rows=target.eot.rows_at_once,
    )
