"""Can an audit's numbers be believed?  What its diagnoses found, and what other attacks had missed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from widemargin.conduct.audited import Array, Question
from widemargin.conduct.pieces import Clock
from widemargin.conduct.subject import DIAGNOSED, Subject
from widemargin.data.examples import Chosen, Examples
from widemargin.files import write_whole
from widemargin.measure.curve import check_certificates
from widemargin.measure.diagnostics import Finding, all_findings, black_box, probabilities, randomness, stood_in
from widemargin.measure.draws import Finder
from widemargin.measure.robustness import pgd_attack, robust_accuracy
from widemargin.uncertainty.network import Network

_HANDED_OVER = ("inputs in box", "modes", "probabilities", "randomness")
"""Come first and cost next to nothing, so there is always time for them."""
_RISING = "rising"
DIAGNOSES = (
    *_HANDED_OVER,
    "gradients",
    _RISING,
    "loss surface",
    "more steps",
    "random noise",
    "black box",
    "large radius",
)
"""In the order in which they are made; accuracy can only rise where there are two radii."""


def diagnosed(
    subject: Subject, question: Question, place: Path, clock: Clock, share: float
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """And the names of those left out.  Made once, and read from then on, unless the time was up before the last."""
    path = place / "findings.json"
    if path.exists():
        return tuple(Finding(**fields) for fields in json.loads(path.read_text())), ()
    some = Chosen(subject.examples, question.asked(len(subject.examples))[:DIAGNOSED])
    network, seen = subject.judged.climbed, list[Finding]()
    curve = _curve(network, some, question, lambda: clock.left(share) > 0)
    whole = curve is not None
    try:
        # What was handed over is looked at in any case.
        with _until(network, lambda: clock.left(share) > 0 or len(seen) < len(_HANDED_OVER)):
            found = all_findings(network, some, question.balls[-1], curve or (), seed=question.seed, tick=seen.append)
    except _TimeIsUp:
        found, whole = tuple(seen), False
    if subject.judged.draws is not None:
        found = tuple(_as_judged(subject, some) if one.name == "randomness" else one for one in found)
    if subject.as_logs:
        found = tuple(probabilities(subject.network, some) if one.name == "probabilities" else one for one in found)
    if not whole:
        made = {finding.name for finding in found} | ({_RISING} if len(question.balls) == 1 else set())
        return found, tuple(name for name in DIAGNOSES if name not in made)
    write_whole(path, json.dumps([asdict(finding) for finding in found], indent=1).encode())
    return found, ()


def _curve(
    network: Network, some: Examples, question: Question, go_on: Callable[[], bool]
) -> list[tuple[float, float, int]] | None:
    """Of every ball its radius, robust accuracy and number of points; None if the time was up before the last.

    Ball by ball, as if none knew of the others: only so can accuracy be seen to rise.
    """
    try:
        with _until(network, go_on):
            return [
                (ball.radius, robust_accuracy(network, some, pgd_attack(ball, ball.radius / 4, 10)), len(some))
                for ball in question.balls
            ]
    except _TimeIsUp:
        return None


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


def missed_by_gradients(points: dict[str, Array], attacks: Sequence[Finder]) -> Finding:
    """Square comes last, so whatever it breaks, the gradients had missed."""
    broken = {attack.name: torch.from_numpy(points["by"] == i) for i, attack in enumerate(attacks)}
    black = {name: mask for name, mask in broken.items() if name.startswith("square")}
    found = black_box({name: mask for name, mask in broken.items() if name not in black}, black)
    # Another than that of the diagnoses, which is of fewer points and weaker attacks.
    return replace(found, name="black box of AutoAttack")


def with_stand_in(points: dict[str, Array], moved: dict[str, Array], question: Question, number: int) -> Finding:
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
