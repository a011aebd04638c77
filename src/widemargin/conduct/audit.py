"""How robust is a classifier, honestly?  Chunk by chunk of points, each saved when it is done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save
from torch import Tensor

from widemargin.conduct.audited import Array, Audit, Question, Shown
from widemargin.conduct.findings import diagnosed, missed_by_gradients, with_stand_in
from widemargin.conduct.pace import PROOF, Pace, Tick, listening
from widemargin.conduct.pieces import Clock, joined_pieces, pieces, saved_rows
from widemargin.conduct.shares import Shares
from widemargin.conduct.subject import DIAGNOSED, Subject
from widemargin.data.examples import Chosen
from widemargin.files import write_whole
from widemargin.measure.accuracy import ROWS_AT_ONCE, slices
from widemargin.measure.attacks.standard import standard
from widemargin.measure.certified import certified, certified_radius
from widemargin.measure.curve import robustness
from widemargin.measure.diagnostics import Finding, inputs_in_box, modes, probabilities
from widemargin.measure.distance import NOBODY, distances, shortest_attacks, starts_of
from widemargin.measure.stand_in import fooled, stand_in
from widemargin.perturb.balls import L1, L2, Linf
from widemargin.train.processes import ALONE
from widemargin.uncertainty.network import in_eval_mode

__all__ = ["Subject", "audit"]

SHORTEST = "minimum-norm"
"""The name of all attacks without a radius, among the others: what they find counts in every ball."""
TRANSFER = "transfer from a stand-in"
"""The name of what a small network gives away that was fitted to the answers; tried on whoever stands at the end."""
LONGEST_PROOF = 3.0
"""In seconds."""
SHARE_OF_FINDINGS = 0.3
"""Of a budget, for as long as there are points to be measured."""
FITTED = 500
"""Points whose answers a stand-in is fitted to."""


@dataclass(frozen=True, eq=False)
class _UnderWay:
    """What all steps of an audit share."""

    subject: Subject
    question: Question
    place: Path
    clock: Clock
    processes: Shares
    tick: Tick

    @property
    def rows(self) -> Tensor:
        return self.question.asked(len(self.subject.examples))

    @property
    def first(self) -> bool:
        """Of all processes, the one that does what is done once."""
        return self.processes.rank == 0


def audit(
    subject: Subject,
    question: Question,
    folder: Path,
    budget: float | None = None,
    tick: Tick = lambda done, of: None,
    processes: Shares = ALONE,
) -> Audit | None:
    """Ask everything of every point; what is saved in the folder already is not asked again.

    With a budget in seconds it ends near it, but not before a few points are measured.  Several processes share the
    chunks; only the first returns what all have found.
    """
    work = _UnderWay(subject, question, folder / subject.key(question), Clock(budget), processes, tick)
    work.place.mkdir(parents=True, exist_ok=True)
    asked = Chosen(subject.examples, work.rows)
    if inputs_in_box(asked, question.balls[-1]).verdict == "wrong":
        return _unattacked(subject, question, asked) if work.first else None
    uncertified = _certifiable(work)
    # What makes numbers worthless comes first.
    findings, left_out = _diagnosed(work) if work.first else ((), ())
    _measure(work, certify=not uncertified)
    return _joined(work, findings, left_out, (*subject.doubts, *uncertified)) if work.first else None


def _diagnosed(work: _UnderWay) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    share = 1.0 if len(saved_rows(work.place)) == len(work.rows) else SHARE_OF_FINDINGS
    return diagnosed(work.subject, work.question, work.place, work.clock, share)


def _measure(work: _UnderWay, certify: bool) -> None:
    """All points that are not saved yet, or as many as there is time for; back when all processes are."""
    mine = work.question.chunks(len(work.subject.examples))[work.processes.rank :: work.processes.count]
    pace = Pace(work.tick, len(work.rows))
    for rows in pieces(mine, work.place, work.clock):
        started = time.monotonic()
        with pace.piece(len(saved_rows(work.place)), len(rows)) as heard:
            found = _asked(work.subject, work.question, rows, certify, heard)
        found["seconds"] = np.array([time.monotonic() - started])
        path = work.place / f"{int(rows[0]):06}.safetensors"
        write_whole(path, save({k: np.ascontiguousarray(v) for k, v in found.items()}))
        work.tick(len(saved_rows(work.place)), len(work.rows))
    work.tick(len(saved_rows(work.place)), len(work.rows))
    work.processes.wait()


def _joined(work: _UnderWay, findings: tuple[Finding, ...], left_out: tuple[str, ...], notes: tuple[str, ...]) -> Audit:
    """Of all processes, with what can only be found at the end."""
    subject, question, total = work.subject, work.question, len(work.rows)
    points, seconds = joined_pieces(question, len(subject.examples), work.place)
    attacks = subject.judged.within(standard(question.balls[0], subject.classes))
    findings = (*findings, missed_by_gradients(points, attacks))
    by = (*(attack.name for attack in attacks), SHORTEST)
    moved = _stood_in(work, points)
    if moved is None:
        left_out, notes = (*left_out, "transfer"), (*notes, "No transfer from a stand-in: the time was up.")
    else:
        findings, by = (*findings, with_stand_in(points, moved, question, len(by))), (*by, TRANSFER)
    names, draws, shown = tuple(map(str, subject.examples.names)), subject.judged.draws, _shown(subject, points)
    return Audit(
        subject.name, subject.data, names, question, by, points, findings, total, draws, notes, seconds, shown, left_out
    )


def _unattacked(subject: Subject, question: Question, asked: Chosen) -> Audit:
    """Of points outside the box, where no attack would mean anything: their answers, and what is wrong."""
    begun, network = time.monotonic(), subject.judged.network
    with torch.no_grad(), in_eval_mode(network):
        parts = [(labels, network(inputs).argmax(-1)) for _, inputs, labels in slices(asked, ROWS_AT_ONCE)]
    labels, answers = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
    unknown = np.full(len(labels), np.nan)
    points = {
        "row": asked.rows.numpy(),
        "label": labels,
        "answer": answers,
        "breaks": np.zeros(len(labels), dtype=np.int64),
        "by": np.full(len(labels), NOBODY),
        "margin": np.where(answers == labels, unknown, 0.0),
        "certified": unknown,
    }
    some = Chosen(subject.examples, asked.rows[:DIAGNOSED])
    # All of them are looked at for the box: few may lie outside.
    found = (
        inputs_in_box(asked, question.balls[-1]),
        modes(subject.network, some),
        probabilities(subject.network, some),
    )
    note = "Nothing was attacked, since points lie outside the box: nothing is known of robust accuracy and margins."
    names = tuple(map(str, subject.examples.names))
    seconds = time.monotonic() - begun
    draws, notes = subject.judged.draws, (note, *subject.doubts)
    return Audit(subject.name, subject.data, names, question, (), points, found, len(labels), draws, notes, seconds)


def _stood_in(work: _UnderWay, points: dict[str, Array]) -> dict[str, Array] | None:
    """How far each point is from what a stand-in gave away, and what it was; made once, of all points, in time."""
    subject, question = work.subject, work.question
    path = work.place / f"stand-in of {len(points['row'])}.safetensors"
    if not path.exists():
        if len(points["row"]) < len(work.rows) or work.clock.left() <= 0:
            return None
        rows, judges, largest = torch.from_numpy(points["row"]), subject.judged, question.balls[-1]
        # The same points however many are asked about, so that a point's record does not depend on that.
        some = Chosen(subject.examples, question.order(len(subject.examples))[:FITTED])
        fitted = stand_in(judges.climbed, some, largest, question.seed)
        standing = torch.from_numpy(points["breaks"] == len(question.balls)).nonzero()[:, 0]
        distance = torch.full((len(rows),), torch.inf, dtype=torch.float64)
        if len(standing):
            left_over = Chosen(subject.examples, rows[standing])
            distance[standing] = fooled(judges.network, left_over, largest, fitted, judges.rows_at_once)
        found = {
            "distance": distance.numpy(),
            "agreement": np.array([fitted.agreement]),
            "kind": np.frombuffer(fitted.kind.encode(), dtype=np.uint8),
        }
        write_whole(path, save(found))
    return load_file(path)


def _shown(subject: Subject, points: dict[str, Array], most: int = 8) -> Shown | None:
    place, way = points["place"], points["way"]
    if place.ndim != 4 or place.shape[1] not in (1, 3):
        return None
    near = np.argsort(np.where((way > 0) & np.isfinite(way), way, np.inf))[:most]
    near = near[np.isfinite(way[near]) & (way[near] > 0)]
    before, _ = subject.examples.batch(torch.from_numpy(points["row"][near]))
    network = subject.judged.network
    with torch.no_grad(), in_eval_mode(network):
        answers = network(torch.from_numpy(place[near]).to(before.device)).argmax(-1) if len(near) else before
    return Shown(before.cpu().numpy(), place[near], points["label"][near], answers.cpu().numpy(), way[near])


def _certifiable(work: _UnderWay) -> tuple[str, ...]:
    """Why there is no certificate, if there is none; decided once, so that all points have one or none has."""
    path = work.place / "uncertified.json"
    if not work.first:
        work.processes.wait()
    if not path.exists():
        write_whole(path, json.dumps(_uncertified(work.subject, work.question)).encode())
    if work.first:
        work.processes.wait()
    return tuple(json.loads(path.read_text()))


def _uncertified(subject: Subject, question: Question) -> tuple[str, ...]:
    # Of this thread alone, so that it does not matter what else the machine has to do.
    begun = time.thread_time()
    try:
        certified(subject.judged.network, subject.examples.take(torch.arange(1)), question.balls[0])
    except ValueError as problem:
        return (f"No certified bounds: {problem}.",)
    # Of large networks, whose bounds are loose, proofs would take longer than all attacks.
    if time.thread_time() - begun > LONGEST_PROOF:
        return (f"No certified bounds: one proof takes more than {LONGEST_PROOF:g} s.",)
    return ()


def _asked(
    subject: Subject,
    question: Question,
    rows: Tensor,
    certify: bool,
    heard: Callable[[int], None] = lambda answers: None,
) -> dict[str, Array]:
    """Everything that is saved of these points; `heard` is told how many answers it took so far."""
    examples, judges, largest = Chosen(subject.examples, rows), subject.judged, question.balls[-1]
    network = judges.network
    inputs, labels = examples.batch(torch.arange(len(examples)))
    with torch.no_grad(), in_eval_mode(network):
        answers = network(inputs).argmax(-1)
    proven = torch.full((len(examples),), torch.nan, dtype=torch.float64)
    if certify:
        proven = certified_radius(network, examples, largest, tick=lambda done: heard(PROOF)).cpu()
    classes = subject.classes
    norm = type(largest)
    assert norm in (Linf, L2, L1)
    attacks = shortest_attacks(norm, largest.box, classes, judges.rows_at_once, starts_of(inputs))
    shortest = judges.shortest(attacks, largest.box)
    with listening(heard, network, judges.climbed):
        found = distances(network, examples, norm, largest.box, shortest, question.seed, judges.rows_at_once)
        way = found.distance.cpu().double()
        curve = robustness(
            network,
            examples,
            question.balls,
            lambda ball: judges.within(standard(ball, classes, judges.rows_at_once)),
            known_below=proven if certify else None,
            known_above=torch.where(way > 0, way, torch.inf),
            seed=question.seed,
            rows=judges.rows_at_once,
        )
    # Whom no attack within a ball had to break was broken by those without a radius, which come last in the list.
    by = curve.points.by
    without = (by == NOBODY) & (curve.points.breaks < len(question.balls)) & (way > 0)
    by = torch.where(without, len(judges.within(standard(largest, classes))), by)
    margin = way.minimum(curve.points.distance.cpu())
    return {
        "row": rows.numpy(),
        "label": labels.cpu().numpy(),
        "answer": answers.cpu().numpy(),
        "breaks": curve.points.breaks.numpy(),
        "by": by.numpy(),
        "margin": margin.numpy(),
        "place": found.places.detach().cpu().numpy(),
        "way": way.numpy(),
        "certified": proven.numpy(),
    }
