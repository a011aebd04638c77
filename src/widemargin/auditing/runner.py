"""Runs an audit, chunk by chunk of points, each saved when it is done."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from widemargin.auditing.adversarial import adversarial
from widemargin.auditing.chunks import FIRST, Chunk, check_saved, joined_chunks, pieces, saved_rows, write_chunk
from widemargin.auditing.clock import Clock, Stopwatch, TimeIsUp
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.findings import Diagnosed, Transferred, diagnosed, missed_by_gradients, settled, with_surrogate
from widemargin.auditing.guarded import CERTIFICATES, SHORTEST, Failed, failures, guarded, uncertified
from widemargin.auditing.pace import PROOF, Cost, OnProgress, Pace, cost, listening
from widemargin.auditing.result import Array, Audit
from widemargin.auditing.shares import Shares
from widemargin.auditing.target import DIAGNOSED, AuditTarget
from widemargin.data.dataset import Subset, digest
from widemargin.files import read_json, read_tensors, remove_partial, write_json, write_tensors
from widemargin.measure.accuracy import BATCH_SIZE, iter_batches
from widemargin.measure.certified import certified, certified_radius
from widemargin.measure.curve import Curve, Refuted, robustness
from widemargin.measure.diagnostics import (
    Finding,
    failed_finding,
    inputs_in_box,
    modes,
    probabilities,
    sentence_of,
)
from widemargin.measure.distance import NO_ATTACK, distances
from widemargin.measure.surrogate import fooled, surrogate
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import Ball
from widemargin.perturb.suites import starts_of
from widemargin.shapes import Points
from widemargin.training.processes import ALONE
from widemargin.uncertainty.network import in_eval_mode

__all__ = ["AuditTarget", "audit"]

TRANSFER = "transfer from a surrogate"
"""What a small network gives away that was fitted to the answers; tried on the points that withstand all others."""
LONGEST_PROOF = 3.0
"""In seconds."""
_NOT_EVEN_TRIED = 4
"""A proof that seems to take so many times as long as the longest is not begun."""
SHARE_OF_FINDINGS = 0.3
"""Of a budget, for as long as there are points to be measured."""
_SHARE_OF_ANSWERS = 0.05
"""Of a budget that is too short for a single point, to see at least what the network answers."""
FITTED = 500
"""Points whose answers a surrogate is fitted to."""


@dataclass(frozen=True, eq=False)
class _UnderWay:
    """What all steps of an audit share."""

    subject: AuditTarget
    question: AuditConfig
    place: Path
    clock: Clock
    processes: Shares
    on_progress: OnProgress
    stopwatch: Stopwatch
    failed: Failed = field(default_factory=dict)
    """Parts that are of no single point."""

    @property
    def rows(self) -> Tensor:
        return self.question.asked(len(self.subject.examples))

    @property
    def first(self) -> bool:
        """Of all processes, the one that does what is done once."""
        return self.processes.rank == 0

    @cached_property
    def cost(self) -> Cost:
        """Of a pass; known only if there is a budget, which alone needs it."""
        if self.clock.budget is None:
            return Cost(0.0, 0.0)
        judges = self.subject.eot
        return cost(judges.network, judges.climbed, self._first_inputs)

    @property
    def each(self) -> float:
        """How many seconds a point may take."""
        return self.cost.of_point(self.subject.classes, starts_of(self._first_inputs))

    @property
    def _first_inputs(self) -> Points:
        return self.subject.examples[self.rows[:FIRST]][0]


def audit(
    subject: AuditTarget,
    question: AuditConfig,
    folder: Path,
    budget: float | None = None,
    on_progress: OnProgress = lambda done, of: None,
    processes: Shares = ALONE,
) -> Audit | None:
    """Ask everything of every point; what is saved in the folder already is not asked again.

    With a budget in seconds it ends near it; if that is too short for a single point, the audit says what it should be.
    Several processes share the chunks; only the first returns what all have found.  A part that fails is left out, and
    a finding says so.
    """
    place, clock = folder / subject.key(question), Clock(budget)
    work = _UnderWay(subject, question, place, clock, processes, on_progress, Stopwatch(place / "seconds.json"))
    place.mkdir(parents=True, exist_ok=True)
    if work.first:
        # The others write nothing before the first has decided on certificates.
        remove_partial(place)
    check_saved(place, question, len(subject.examples))
    asked = Subset(subject.examples, work.rows)
    if inputs_in_box(asked, question.balls[-1]).verdict == "wrong":
        return _outside(work, asked) if work.first else None
    why_not = _certifiable(work)
    # What makes numbers worthless comes first.
    findings = _diagnosed(work) if work.first else Diagnosed()
    _measure(work, certify=not why_not)
    return _joined(work, findings, (*subject.warnings, *why_not)) if work.first else None


def _diagnosed(work: _UnderWay) -> Diagnosed:
    share = 1.0 if len(saved_rows(work.place)) == len(work.rows) else SHARE_OF_FINDINGS
    before = (work.place / "findings.json").exists()
    findings = diagnosed(work.subject, work.question, work.place, work.clock, share, work.cost.answer)
    if not before:
        work.stopwatch.save()
    return findings


def _measure(work: _UnderWay, certify: bool) -> None:
    """All points that are not saved yet, or as many as there is time for; back when all processes are."""
    mine = work.question.chunks(len(work.subject.examples))[work.processes.rank :: work.processes.count]
    pace = Pace(work.on_progress, len(work.rows))
    try:
        for rows in pieces(mine, work.place, work.clock, work.each):
            with work.clock.ending(), pace.piece(len(saved_rows(work.place)), len(rows)) as on_answers:
                piece = _asked(work.subject, work.question, rows, certify, on_answers)
            write_chunk(work.place, piece)
            if work.first:
                work.stopwatch.save()
            work.on_progress(len(saved_rows(work.place)), len(work.rows))
    except TimeIsUp:
        # The points under way took longer than expected: they are not known whole, so they do not count.
        if work.first:
            work.stopwatch.save()
    work.on_progress(len(saved_rows(work.place)), len(work.rows))
    work.processes.wait()


def _joined(work: _UnderWay, diagnosed: Diagnosed, notes: tuple[str, ...]) -> Audit:
    """Of all processes, with what can only be found at the end."""
    subject, question = work.subject, work.question
    piece = joined_chunks(question, len(subject.examples), work.place)
    if piece is None:
        return _too_short(work, diagnosed, notes)
    points, failed = dict(piece.points), {**piece.failed, **work.failed}
    if np.isnan(points["certified"]).any() and not notes and CERTIFICATES not in failed:
        notes = ("No certified bounds: some points were measured without.",)
    attacks = _within(subject, question, question.balls[0])
    names = tuple(attack.name for attack in attacks)
    findings = (*diagnosed.findings, *failures(failed, names), *missed_by_gradients(points, attacks))
    by, left_out = (*names, SHORTEST), diagnosed.left_out
    try:
        moved = _stood_in(work, points)
    except Exception as problem:
        moved, findings = None, (*findings, failed_finding("transfer", sentence_of(problem), "nothing is known of it"))
    else:
        if moved is None:
            left_out, notes = (*left_out, "transfer"), (*notes, "No transfer from a surrogate: the time was up.")
        else:
            by = (*by, TRANSFER)
            findings = (*findings, *_with_surrogate(points, moved, question, len(by) - 1))
    return replace(
        _answered(work, points),
        attacks=by,
        findings=settled(findings, points, question),
        notes=notes,
        adversarial=adversarial(subject, question, points),
        left_out=left_out,
        failed=tuple(name for name in by if name in failed),
    )


def _with_surrogate(
    points: dict[str, Array], moved: Transferred, question: AuditConfig, number: int
) -> tuple[Finding, ...]:
    try:
        return (with_surrogate(points, moved, question, number),)
    except Refuted as problem:
        # What was found counts; what was proven does not.
        points["certified"] = np.full_like(points["certified"], np.nan)
        return (with_surrogate(points, moved, question, number), uncertified(str(problem)))


def _answered(work: _UnderWay, points: dict[str, Array]) -> Audit:
    """All but what attacks and diagnoses found."""
    subject = work.subject
    return Audit(
        name=subject.name,
        data=subject.data,
        classes=tuple(map(str, subject.examples.names)),
        question=work.question,
        attacks=(),
        points=points,
        findings=(),
        asked=len(work.rows),
        draws=subject.eot.draws,
        notes=(),
        seconds=work.stopwatch.seconds,
        digest=subject.examples.digest,
        features=subject.examples.features,
        test_digest=digest(subject.examples.stored, subject.examples.labels),
    )


def _outside(work: _UnderWay, asked: Subset) -> Audit:
    """Of points outside the box, where no attack would mean anything: their answers, and what is wrong."""
    begun, subject = time.monotonic(), work.subject
    points = _unattacked(subject, asked)
    some = Subset(subject.examples, asked.rows[:DIAGNOSED])
    # All of them are looked at for the box: few may lie outside.
    findings = (
        inputs_in_box(asked, work.question.balls[-1]),
        modes(subject.network, some),
        probabilities(subject.network, some),
    )
    note = "Nothing was attacked, since points lie outside the box: nothing is known of robust accuracy and margins."
    seconds = time.monotonic() - begun
    return replace(_answered(work, points), findings=findings, notes=(note, *subject.warnings), seconds=seconds)


def _too_short(work: _UnderWay, diagnosed: Diagnosed, notes: tuple[str, ...]) -> Audit:
    """The answers to some points, and what a budget should be in which more can be said."""
    budget = work.clock.budget
    assert budget is not None
    count = int(min(_SHARE_OF_ANSWERS * budget / max(work.cost.answer, 1e-9), len(work.rows)))
    points = _unattacked(work.subject, Subset(work.subject.examples, work.rows[: max(count, 1)]))
    work.stopwatch.save()
    least = work.each / (1 - SHARE_OF_FINDINGS)
    said = (
        f"A budget of {duration(budget)} is too short to attack a single point of this network, which may take "
        f"{duration(work.each)}: give one of at least {duration(least)}."
    )
    return replace(
        _answered(work, points), findings=diagnosed.findings, left_out=diagnosed.left_out, notes=notes, too_short=said
    )


def duration(seconds: float) -> str:
    """Rounded up, as the command line takes it."""
    if seconds < 100:
        return f"{math.ceil(seconds)}s"
    return f"{math.ceil(seconds / 60)}m" if seconds < 6_000 else f"{math.ceil(seconds / 3_600)}h"


def _unattacked(subject: AuditTarget, asked: Subset) -> dict[str, Array]:
    network = subject.eot.network
    with torch.no_grad(), in_eval_mode(network):
        parts = [(labels, network(inputs).argmax(-1)) for _, inputs, labels in iter_batches(asked, BATCH_SIZE)]
    labels, answers = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
    unknown = np.full(len(labels), np.nan)
    return {
        "row": asked.rows.numpy(),
        "label": labels,
        "answer": answers,
        "breaks": np.zeros(len(labels), dtype=np.int64),
        "by": np.full(len(labels), NO_ATTACK),
        "margin": np.where(answers == labels, unknown, 0.0),
        "certified": unknown,
    }


def _stood_in(work: _UnderWay, points: dict[str, Array]) -> Transferred | None:
    """Made once, of all points, in time."""
    path = work.place / f"surrogate of {len(points['row'])}.safetensors"
    if not path.exists():
        if len(points["row"]) < len(work.rows) or work.clock.left() <= 0:
            return None
        try:
            with work.clock.ending():
                _make_surrogate(work, points, path)
        except TimeIsUp:
            return None
        work.stopwatch.save()
    tensors, note = read_tensors(path)
    return Transferred(tensors["distance"].numpy(), note["kind"], note["agreement"])


def _make_surrogate(work: _UnderWay, points: dict[str, Array], path: Path) -> None:
    subject, question = work.subject, work.question
    rows, judges, largest = torch.from_numpy(points["row"]), subject.eot, question.balls[-1]
    # The same points however many are asked about, so that a point's record does not depend on that.
    some = Subset(subject.examples, question.order(len(subject.examples))[:FITTED])
    fitted = surrogate(judges.climbed, some, largest, question.seed)
    standing = torch.from_numpy(points["breaks"] == len(question.balls)).nonzero()[:, 0]
    distance = torch.full((len(rows),), torch.inf, dtype=torch.float64)
    if len(standing):
        left_over = Subset(subject.examples, rows[standing])
        distance[standing] = fooled(judges.network, left_over, largest, fitted, judges.rows_at_once)
    write_tensors(path, {"distance": distance}, {"kind": fitted.kind, "agreement": fitted.agreement})


def _certifiable(work: _UnderWay) -> tuple[str, ...]:
    """Why there is no certificate, if there is none; decided once, so that all points have one or none has."""
    path = work.place / "uncertified.json"
    if not work.first:
        work.processes.wait()
    if not path.exists():
        write_json(path, _uncertified(work.subject, work.question))
    if work.first:
        work.processes.wait()
    stored = read_json(path)
    work.failed.update(stored["failed"])
    return tuple(stored["reasons"])


def _uncertified(subject: AuditTarget, question: AuditConfig) -> dict[str, object]:
    """Reasons why there can be none, and what went wrong though there might be."""
    network, one = subject.eot.network, subject.examples.take(torch.arange(1))
    with torch.no_grad(), in_eval_mode(network):
        # The first may have to prepare something.
        answers = [_thread_seconds(lambda: network(one[torch.arange(1)][0])) for _ in range(3)]
    # Of large networks, whose bounds are loose, proofs would take longer than all attacks.
    expected = PROOF * min(answers)
    if expected > _NOT_EVEN_TRIED * LONGEST_PROOF > 0:
        return {"reasons": [f"No certified bounds: one proof would take about {duration(expected)}."], "failed": {}}
    try:
        took = _thread_seconds(lambda: certified(network, one, question.balls[0]))
    except ValueError as problem:
        return {"reasons": [f"No certified bounds: {problem}."], "failed": {}}
    except Exception as problem:
        # Of a network that is not as others: it is audited without.
        return {"reasons": ["No certified bounds: the proof failed."], "failed": {CERTIFICATES: sentence_of(problem)}}
    slow = [f"No certified bounds: one proof takes more than {LONGEST_PROOF:g} s."] if took > LONGEST_PROOF else []
    return {"reasons": slow, "failed": {}}


def _thread_seconds(work: Callable[[], object]) -> float:
    """Of this thread alone, so that it does not matter what else the machine has to do."""
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def _asked(
    subject: AuditTarget,
    question: AuditConfig,
    rows: Tensor,
    certify: bool,
    on_answers: Callable[[int], None] = lambda answers: None,
) -> Chunk:
    """Everything that is saved of these points; `on_answers` gets the number of answers of each pass."""
    failed = Failed()
    try:
        points = _measured(subject, question, rows, certify, on_answers, failed)
    except Exception as problem:
        raise ValueError(_fails(sentence_of(problem))) from problem
    within = {attack.name for attack in _within(subject, question, question.balls[0])}
    if within <= set(failed):
        raise ValueError(_fails(next(iter(failed.values()))))
    return Chunk(points, failed)


def _within(subject: AuditTarget, question: AuditConfig, ball: Ball) -> tuple[Attack, ...]:
    """The attacks in a ball."""
    judges = subject.eot
    return judges.within(question.standard(ball, subject.classes, judges.rows_at_once), ball)


def _fails(why: str) -> str:
    return (
        f"the network must answer wherever it is asked, but failed while points were attacked ({why}): what was "
        "measured before is saved, and the same command goes on from there"
    )


def _measured(
    subject: AuditTarget,
    question: AuditConfig,
    rows: Tensor,
    certify: bool,
    on_answers: Callable[[int], None],
    failed: Failed,
) -> dict[str, Array]:
    examples, judges, largest = Subset(subject.examples, rows), subject.eot, question.balls[-1]
    network = judges.network
    inputs, labels = examples[torch.arange(len(examples))]
    with torch.no_grad(), in_eval_mode(network):
        answers = network(inputs).argmax(-1)
    unknown = torch.full((len(examples),), torch.nan, dtype=torch.float64)
    proven = unknown
    if certify:
        try:
            proven = certified_radius(network, examples, largest, on_progress=lambda done: on_answers(PROOF)).cpu()
        except Exception as problem:
            failed[CERTIFICATES] = sentence_of(problem)
    norm = type(largest)
    attacks = question.shortest(norm, largest.box, subject.classes, judges.rows_at_once, starts_of(inputs))
    shortest = judges.shortest(attacks, largest)

    def curve(known_below: Tensor | None, distance: Tensor) -> Curve:
        return robustness(
            network,
            examples,
            question.balls,
            lambda ball: guarded(_within(subject, question, ball), failed),
            known_below=known_below,
            known_above=torch.where(distance > 0, distance, torch.inf),
            seed=question.seed,
            rows=judges.rows_at_once,
        )

    places, distance = inputs, torch.where(answers == labels, torch.inf, 0.0).cpu().double()
    with listening(on_answers, network, judges.climbed):
        try:
            nearest = distances(
                network, examples, norm, largest.box, guarded(shortest, failed), question.seed, judges.rows_at_once
            )
            places, distance = nearest.places.detach(), nearest.distance.cpu().double()
        except Exception as problem:
            failed[SHORTEST] = sentence_of(problem)
        try:
            known = curve(None if proven.isnan().any() else proven, distance).points
        except Refuted as problem:
            failed[CERTIFICATES], proven = str(problem), unknown
            known = curve(None, distance).points
    # Whom no attack within a ball had to break was broken by those without a radius, which come last in the list.
    without = (known.by == NO_ATTACK) & (known.breaks < len(question.balls)) & (distance > 0)
    by = torch.where(without, len(_within(subject, question, largest)), known.by)
    return {
        "row": rows.numpy(),
        "label": labels.cpu().numpy(),
        "answer": answers.cpu().numpy(),
        "breaks": known.breaks.numpy(),
        "by": by.numpy(),
        "margin": distance.minimum(known.distance.cpu()).numpy(),
        "place": places.cpu().numpy(),
        "way": distance.numpy(),
        "certified": proven.numpy(),
    }
