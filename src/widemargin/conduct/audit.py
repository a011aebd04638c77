"""How robust is a classifier, honestly?  Chunk by chunk of points, each saved when it is done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save
from torch import Tensor

from widemargin.conduct.audited import FORMAT, Array, Audit, Question, Shown
from widemargin.conduct.pieces import Clock, joined_pieces, pieces, saved_rows
from widemargin.conduct.shares import Shares
from widemargin.data.examples import Chosen, Examples
from widemargin.data.labelled import Labelled
from widemargin.measure.accuracy import ROWS_AT_ONCE, slices
from widemargin.measure.attacks.standard import standard
from widemargin.measure.certified import certified, certified_radius
from widemargin.measure.curve import check_certificates, robustness
from widemargin.measure.diagnostics import (
    Finding,
    all_findings,
    black_box,
    inputs_in_box,
    modes,
    probabilities,
    randomness,
    stood_in,
)
from widemargin.measure.distance import NOBODY, distances, shortest_attacks
from widemargin.measure.draws import Finder, Judged, judged
from widemargin.measure.robustness import pgd_attack, robust_accuracy
from widemargin.measure.stand_in import fooled, stand_in
from widemargin.perturb.balls import L1, L2, Linf
from widemargin.run import key_of
from widemargin.train.checkpoint import write_whole
from widemargin.train.processes import ALONE
from widemargin.uncertainty.logs import Logs
from widemargin.uncertainty.network import Network, in_eval_mode

SHORTEST = "minimum-norm"
"""The name of DDN, FMN and FAB without a radius, among the attacks: what they find counts in every ball."""
TRANSFER = "transfer from a stand-in"
"""The name of what a small network gives away that was fitted to the answers; tried on whoever stands at the end."""
LONGEST_PROOF = 3.0
"""In seconds."""
SHARE_OF_FINDINGS = 0.3
"""Of a budget, for as long as there are points to be measured."""
_HANDED_OVER = 4
"""Findings that come first and cost next to nothing."""
FITTED = 500
"""Points whose answers a stand-in is fitted to."""
DIAGNOSED = 200
"""Points for the diagnoses, which need no more."""


@dataclass(frozen=True, eq=False)
class Subject:
    """Whom an audit is about."""

    network: Network
    name: str
    digest: str
    examples: Labelled
    data: str

    @cached_property
    def judged(self) -> Judged:
        """Who decides whether a point is right, and what attacks climb."""
        return judged(Logs(self.network) if self.as_logs else self.network, self.examples)

    @cached_property
    def as_logs(self) -> bool:
        """Whether all answers are probabilities, of which no attack could climb anything."""
        found = probabilities(self.network, self.examples.take(torch.arange(min(DIAGNOSED, len(self.examples)))))
        return found.numbers["share"] == 1 and found.numbers["lowest"] >= 0 and found.numbers["highest"] <= 1

    def key(self, question: Question) -> str:
        # How many points are asked together decides nothing.
        same = replace(question, chunk=Question.chunk)
        return key_of(FORMAT, self.digest, self.examples.origin.digest, len(self.examples), same)


Tick = Callable[[int, int], None]
"""Told how many points are done, and of how many."""


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
    clock = Clock(budget)
    place = folder / subject.key(question)
    place.mkdir(parents=True, exist_ok=True)
    total = min(question.points, len(subject.examples))
    asked = Chosen(subject.examples, question.order(len(subject.examples))[:total])
    if inputs_in_box(asked, question.balls[-1]).verdict == "wrong":
        return _unattacked(subject, question, asked) if processes.rank == 0 else None
    attacks = subject.judged.within(standard(question.balls[0], _classes(subject)))
    if processes.rank == 0:
        _certifiable(subject, question, place)
    processes.wait()
    uncertified = _certifiable(subject, question, place)
    findings: tuple[Finding, ...] = ()
    cut: tuple[str, ...] = ()
    if processes.rank == 0:
        # What makes numbers worthless comes first.
        findings, cut = _findings(
            subject, question, place, clock, 1.0 if len(saved_rows(place)) == total else SHARE_OF_FINDINGS
        )
    mine = question.chunks(len(subject.examples))[processes.rank :: processes.count]
    for rows in pieces(mine, place, clock):
        started = time.monotonic()
        found = _asked(subject, question, rows, certify=not uncertified)
        found["seconds"] = np.array([time.monotonic() - started])
        path = place / f"{int(rows[0]):06}.safetensors"
        write_whole(path, save({k: np.ascontiguousarray(v) for k, v in found.items()}))
        tick(len(saved_rows(place)), total)
    tick(len(saved_rows(place)), total)
    processes.wait()
    if processes.rank > 0:
        return None
    joined, seconds = joined_pieces(question, len(subject.examples), place)
    findings = (*findings, _black_box(joined, attacks))
    by = (*(attack.name for attack in attacks), SHORTEST)
    moved = _stood_in(subject, question, place, joined, clock.left() if len(joined["row"]) == total else 0.0)
    if moved is not None:
        findings, by = (*findings, _with_stand_in(joined, moved, question, len(by))), (*by, TRANSFER)
    return Audit(
        subject.name,
        subject.data,
        tuple(map(str, subject.examples.names)),
        question,
        by,
        joined,
        findings,
        total,
        subject.judged.draws,
        (
            *_doubtful(subject),
            *uncertified,
            *cut,
            *(("No transfer from a stand-in: the time was up.",) * (moved is None)),
        ),
        seconds,
        _shown(subject, joined),
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
    draws, notes = subject.judged.draws, (note, *_doubtful(subject))
    return Audit(subject.name, subject.data, names, question, (), points, found, len(labels), draws, notes, seconds)


def _stood_in(
    subject: Subject, question: Question, place: Path, points: dict[str, Array], left: float
) -> dict[str, Array] | None:
    """How far each point is from what a stand-in gave away, and what it was; made once, if there is time."""
    path = place / f"stand-in of {len(points['row'])}.safetensors"
    if not path.exists():
        if left <= 0:
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


def _with_stand_in(points: dict[str, Array], moved: dict[str, Array], question: Question, number: int) -> Finding:
    """Whoever was broken counts as broken, from the ball on that holds the place."""
    distance, standing = moved["distance"], points["breaks"] == len(question.balls)
    broken = standing & np.isfinite(distance)
    radii = [ball.radius for ball in question.balls]
    from_ball = np.minimum(np.searchsorted(radii, distance[broken] * (1 - 1e-5)), len(radii) - 1)
    points["breaks"][broken], points["by"][broken] = from_ball, number
    points["margin"] = np.minimum(points["margin"], distance)
    # NaN, where there is no certificate, refutes nothing.
    check_certificates(*(torch.from_numpy(points[name]) for name in ("margin", "certified", "row")))
    kind = bytes(moved["kind"]).decode()
    return stood_in(torch.from_numpy(~standing), torch.from_numpy(broken), kind, float(moved["agreement"][0]))


def _black_box(points: dict[str, Array], attacks: Sequence[Finder]) -> Finding:
    """Square comes last, so whatever it breaks, the gradients had missed."""
    broken = {attack.name: torch.from_numpy(points["by"] == i) for i, attack in enumerate(attacks)}
    black = {name: mask for name, mask in broken.items() if name.startswith("square")}
    found = black_box({name: mask for name, mask in broken.items() if name not in black}, black)
    # Another than that of the diagnoses, which is of fewer points and weaker attacks.
    return replace(found, name="black box of AutoAttack")


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


def _classes(subject: Subject) -> int:
    inputs, _ = subject.examples.batch(torch.arange(1))
    network = subject.judged.network
    with torch.no_grad(), in_eval_mode(network):
        return int(network(inputs).shape[-1])


def _doubtful(subject: Subject) -> tuple[str, ...]:
    """What is doubtful of all figures, if answers are random or no logits."""
    problem = subject.judged.problem
    random = (f"Answers are random, and every figure is of single ones, since {problem}.",) if problem else ()
    return (*random, *(("Answers are probabilities: attacks climbed their logs.",) * subject.as_logs))


def _certifiable(subject: Subject, question: Question, place: Path) -> tuple[str, ...]:
    """Why there is no certificate, if there is none; decided once, so that all points have one or none has."""
    path = place / "uncertified.json"
    if not path.exists():
        write_whole(path, json.dumps(_uncertified(subject, question)).encode())
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


def _asked(subject: Subject, question: Question, rows: Tensor, certify: bool) -> dict[str, Array]:
    examples, judges, largest = Chosen(subject.examples, rows), subject.judged, question.balls[-1]
    network = judges.network
    inputs, labels = examples.batch(torch.arange(len(examples)))
    with torch.no_grad(), in_eval_mode(network):
        answers = network(inputs).argmax(-1)
    proven = torch.full((len(examples),), torch.nan, dtype=torch.float64)
    if certify:
        proven = certified_radius(network, examples, largest).cpu()
    classes = _classes(subject)
    norm = type(largest)
    assert norm in (Linf, L2, L1)
    shortest = judges.shortest(shortest_attacks(norm, largest.box, classes, judges.rows_at_once), largest.box)
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


def _findings(
    subject: Subject, question: Question, place: Path, clock: Clock, share: float
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """And whether some were left out.  Made once, and read from then on, unless the time was up before the last."""
    path = place / "findings.json"
    if path.exists():
        return tuple(Finding(**fields) for fields in json.loads(path.read_text())), ()
    some = Chosen(subject.examples, question.order(len(subject.examples))[: min(DIAGNOSED, question.points)])
    network, seen = subject.judged.climbed, list[Finding]()
    try:
        # Ball by ball, as if none knew of the others: only so can accuracy be seen to rise.
        curve = [
            (ball.radius, robust_accuracy(network, some, pgd_attack(ball, ball.radius / 4, 10)), len(some))
            for ball in question.balls
            if clock.left(share) > 0
        ]
        # What was handed over is looked at in any case.
        with _until(network, lambda: clock.left(share) > 0 or len(seen) < _HANDED_OVER):
            found = all_findings(network, some, question.balls[-1], curve, seed=question.seed, tick=seen.append)
        cut = clock.left(share) <= 0 and len(curve) < len(question.balls)
    except _TimeIsUp:
        found, cut = tuple(seen), True
    if subject.judged.draws is not None:
        found = tuple(_as_judged(subject, some) if one.name == "randomness" else one for one in found)
    if subject.as_logs:
        found = tuple(probabilities(subject.network, some) if one.name == "probabilities" else one for one in found)
    if cut:
        return found, (f"Only {len(found)} diagnoses: the time was up.",)
    write_whole(path, json.dumps([asdict(finding) for finding in found], indent=1).encode())
    return found, ()


class _TimeIsUp(Exception):
    pass


@contextmanager
def _until(network: Network, go_on: Callable[[], bool]) -> Iterator[None]:
    """Whatever asks the network is ended once it shall not go on."""

    def check(*_: object) -> None:
        if not go_on():
            raise _TimeIsUp

    hook = network.register_forward_pre_hook(check)
    try:
        yield
    finally:
        hook.remove()


def _as_judged(subject: Subject, some: Examples) -> Finding:
    """Whether the network draws when it is asked, and what was done about it."""
    found, draws = randomness(subject.network, some), subject.judged.draws
    assert draws is not None
    if found.verdict == "fine":
        return found
    evidence = f"{found.evidence}; all figures here are of the mean over {draws.verification} fixed draws"
    return replace(found, verdict="suspicious", evidence=evidence, advice="use it by such a mean, too")
