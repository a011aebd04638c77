"""Runs an audit, chunk by chunk of points, each saved when it is done."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from widemargin.auditing.adversarial import adversarial
from widemargin.auditing.categories import names_of
from widemargin.auditing.certificates import uncertifiable
from widemargin.auditing.chunks import FIRST, check_saved, joined_chunks, pieces, saved_rows, write_chunk
from widemargin.auditing.clock import UNLIMITED, Clock, Stopwatch, TimeIsUp, duration
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.findings import Diagnosed, diagnosed, missed_by_gradients, settled
from widemargin.auditing.guarded import CERTIFICATES, CHANGE, SHORTEST, Failed, failures
from widemargin.auditing.measuring import attacks_within, measured_chunk, unattacked
from widemargin.auditing.pace import Cost, OnProgress, Pace, cost
from widemargin.auditing.result import Array, Audit
from widemargin.auditing.shares import Shares
from widemargin.auditing.target import DIAGNOSED, AuditTarget
from widemargin.auditing.transfer import TRANSFER, Transferred, transferred, with_surrogate
from widemargin.data.dataset import Subset, digest
from widemargin.files import read_json, read_tensors, remove_partial, write_json, write_tensors
from widemargin.measure.certified import certified_radius
from widemargin.measure.diagnostics import failed_finding, inputs_in_box, modes, probabilities, sentence_of
from widemargin.perturb.suites import starts_of
from widemargin.shapes import Points
from widemargin.training.processes import ALONE

SHARE_OF_FINDINGS = 0.3
"""Of a budget, for as long as there are points to be measured."""
_SHARE_OF_ANSWERS = 0.05
"""Of a budget that is too short for a single point, to see at least what the network answers."""


@dataclass(frozen=True, eq=False)
class _UnderWay:
    """What all steps of an audit share."""

    target: AuditTarget
    config: AuditConfig
    place: Path
    clock: Clock
    processes: Shares
    on_progress: OnProgress
    stopwatch: Stopwatch
    failed: Failed = field(default_factory=dict)
    """Parts that are of no single point."""

    @property
    def rows(self) -> Tensor:
        return self.config.sample(len(self.target.examples))

    @property
    def first(self) -> bool:
        """Of all processes, the one that does what is done once."""
        return self.processes.rank == 0

    @cached_property
    def cost(self) -> Cost:
        """Of a pass; known only if there is a budget, which alone needs it."""
        if self.clock.budget is None:
            return Cost(0.0, 0.0)
        eot = self.target.eot
        return cost(eot.network, eot.climbed, self._first_inputs, self.clock.now)

    @property
    def each(self) -> float:
        """How many seconds a point may take."""
        changes = self.config.categories
        alternatives = 1 if changes is None else changes.attacked
        return alternatives * self.cost.of_point(self.target.classes, starts_of(self._first_inputs))

    @property
    def _first_inputs(self) -> Points:
        return self.target.examples[self.rows[:FIRST]][0]


def audit(
    target: AuditTarget,
    config: AuditConfig,
    folder: Path,
    clock: Clock = UNLIMITED,
    on_progress: OnProgress = lambda done, of: None,
    processes: Shares = ALONE,
) -> Audit | None:
    """Measure everything of every point; what is saved in the folder already is not measured again.

    With a clock that has a budget it ends near it; if that is too short for a single point, the audit says what it
    should be.  Several processes share the chunks; only the first returns what all have found.  A part that fails is
    left out, and a finding says so.
    """
    place = folder / target.key(config)
    stopwatch = Stopwatch(place / "seconds.json", clock.now(), clock.now)
    work = _UnderWay(target, config, place, clock, processes, on_progress, stopwatch)
    place.mkdir(parents=True, exist_ok=True)
    if work.first:
        # The others write nothing before the first has decided on certificates.
        remove_partial(place)
    check_saved(place, config, len(target.examples))
    examples = Subset(target.examples, work.rows)
    if inputs_in_box(examples, config.balls[-1]).verdict == "wrong":
        return _outside(work, examples) if work.first else None
    why_not = _certifiable(work)
    # What makes numbers worthless comes first.
    findings = _diagnosed(work) if work.first else Diagnosed()
    _measure(work, certify=not why_not)
    return _joined(work, findings, (*target.warnings, *why_not)) if work.first else None


def _diagnosed(work: _UnderWay) -> Diagnosed:
    share = 1.0 if len(saved_rows(work.place)) == len(work.rows) else SHARE_OF_FINDINGS
    before = (work.place / "findings.json").exists()
    findings = diagnosed(work.target, work.config, work.place, work.clock, share, work.cost.answer)
    if not before:
        work.stopwatch.save()
    return findings


def _measure(work: _UnderWay, certify: bool) -> None:
    """All points that are not saved yet, or as many as there is time for; back when all processes are."""
    mine = work.config.chunks(len(work.target.examples))[work.processes.rank :: work.processes.count]
    pace = Pace(work.on_progress, len(work.rows))
    try:
        for rows in pieces(mine, work.place, work.clock, work.each):
            with work.clock.ending(), pace.piece(len(saved_rows(work.place)), len(rows)) as on_answers:
                piece = measured_chunk(
                    work.target, work.config, rows, certified_radius if certify else None, on_answers
                )
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
    target, config = work.target, work.config
    piece = joined_chunks(config, len(target.examples), work.place)
    if piece is None:
        return _too_short(work, diagnosed, notes)
    points, failed = dict(piece.points), {**piece.failed, **work.failed}
    if np.isnan(points["certified"]).any() and not notes and CERTIFICATES not in failed:
        notes = ("No certified bounds: some points were measured without.",)
    attacks = attacks_within(target, config, config.balls[0])
    names = tuple(attack.name for attack in attacks)
    findings = (*diagnosed.findings, *failures(failed, names), *missed_by_gradients(points, attacks))
    by, left_out = (*names, SHORTEST), diagnosed.left_out
    if config.categories is not None:
        by = (*by, CHANGE)
    try:
        moved = _transferred(work, points)
    except Exception as problem:
        moved, findings = None, (*findings, failed_finding("transfer", sentence_of(problem), "nothing is known of it"))
    else:
        if moved is None:
            left_out, notes = (*left_out, "transfer"), (*notes, "No transfer from a surrogate: the time was up.")
        else:
            by = (*by, TRANSFER)
            findings = (*findings, *with_surrogate(points, moved, config, len(by) - 1))
    return replace(
        _answered(work, points),
        attacks=by,
        findings=settled(findings, points, config),
        notes=notes,
        adversarial=adversarial(target, config, points),
        left_out=left_out,
        failed=tuple(name for name in by if name in failed),
    )


def _answered(work: _UnderWay, points: dict[str, Array]) -> Audit:
    """All but what attacks and diagnoses found."""
    target = work.target
    return Audit(
        name=target.name,
        data=target.data,
        classes=tuple(map(str, target.examples.names)),
        config=work.config,
        attacks=(),
        points=points,
        findings=(),
        asked=len(work.rows),
        draws=target.eot.draws,
        notes=(),
        seconds=work.stopwatch.seconds,
        digest=target.examples.digest,
        features=target.examples.features,
        test_digest=digest(target.examples.stored, target.examples.labels),
        categories=names_of(work.config.categories, target.examples),
    )


def _outside(work: _UnderWay, examples: Subset) -> Audit:
    """Of points outside the box, where no attack would mean anything: their answers, and what is wrong."""
    begun, target = work.clock.now(), work.target
    points = unattacked(target, examples)
    some = Subset(target.examples, examples.rows[:DIAGNOSED])
    # All of them are looked at for the box: few may lie outside.
    findings = (
        inputs_in_box(examples, work.config.balls[-1]),
        modes(target.network, some),
        probabilities(target.network, some),
    )
    note = "Nothing was attacked, since points lie outside the box: nothing is known of robust accuracy and margins."
    seconds = work.clock.now() - begun
    return replace(_answered(work, points), findings=findings, notes=(note, *target.warnings), seconds=seconds)


def _too_short(work: _UnderWay, diagnosed: Diagnosed, notes: tuple[str, ...]) -> Audit:
    """The answers to some points, and what a budget should be in which more can be said."""
    budget = work.clock.budget
    assert budget is not None
    count = int(min(_SHARE_OF_ANSWERS * budget / max(work.cost.answer, 1e-9), len(work.rows)))
    points = unattacked(work.target, Subset(work.target.examples, work.rows[: max(count, 1)]))
    work.stopwatch.save()
    least = work.each / (1 - SHARE_OF_FINDINGS)
    said = (
        f"A budget of {duration(budget)} is too short to attack a single point of this network, which may take "
        f"{duration(work.each)}: give one of at least {duration(least)}."
    )
    return replace(
        _answered(work, points), findings=diagnosed.findings, left_out=diagnosed.left_out, notes=notes, too_short=said
    )


def _transferred(work: _UnderWay, points: dict[str, Array]) -> Transferred | None:
    """Made once, of all points, in time."""
    path = work.place / f"surrogate of {len(points['row'])}.safetensors"
    if not path.exists():
        if len(points["row"]) < len(work.rows) or work.clock.left() <= 0:
            return None
        try:
            with work.clock.ending():
                made = transferred(work.target, work.config, points)
        except TimeIsUp:
            return None
        content = {"distance": torch.from_numpy(made.distance)}
        write_tensors(path, content, {"kind": made.kind, "agreement": made.agreement})
        work.stopwatch.save()
    tensors, note = read_tensors(path)
    return Transferred(tensors["distance"].numpy(), note["kind"], note["agreement"])


def _certifiable(work: _UnderWay) -> tuple[str, ...]:
    """Why there is no certificate, if there is none; decided once, so that all points have one or none has."""
    path = work.place / "uncertified.json"
    if not work.first:
        work.processes.wait()
    if not path.exists():
        write_json(path, asdict(uncertifiable(work.target, work.config.balls[0], changes=work.config.categories)))
    if work.first:
        work.processes.wait()
    stored = read_json(path)
    work.failed.update(stored["failed"])
    return tuple(stored["reasons"])
