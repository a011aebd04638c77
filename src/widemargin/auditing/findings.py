"""Findings of an audit: what its diagnoses say, and what attacks without gradients break besides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from widemargin.auditing.clock import Clock, TimeIsUp
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.guarded import CERTIFICATES
from widemargin.auditing.result import Array, is_proven
from widemargin.auditing.target import DIAGNOSED, AuditTarget
from widemargin.data.dataset import Examples, Subset
from widemargin.files import read_json, write_json
from widemargin.measure.diagnostics import (
    DIAGNOSES,
    Examined,
    Finding,
    all_findings,
    black_box,
    probabilities,
    randomness,
)
from widemargin.perturb.attack import Attack

_ANSWERS_FOR_SANITY = 10
"""About how often a point is asked for the diagnoses for which there is always time."""
_PROVEN = "no reason for doubt, since certificates prove robust accuracy at every radius"
_LEAST = 8
"""Points for the diagnoses, however short the time."""


@dataclass(frozen=True)
class Diagnosed:
    findings: tuple[Finding, ...] = ()
    left_out: tuple[str, ...] = ()
    """The names of those for which there was no time."""


def diagnosed(
    target: AuditTarget, config: AuditConfig, place: Path, clock: Clock, share: float, answer: float = 0.0
) -> Diagnosed:
    """Made once, and read from then on, unless the time was up before the last; `answer` is in seconds for a point."""
    path = place / "findings.json"
    if path.exists():
        return Diagnosed(tuple(map(_finding, read_json(path)["findings"])))
    rows = config.sample(len(target.examples))[:DIAGNOSED]
    few = max(_LEAST, int(min(clock.left(share) / max(_ANSWERS_FOR_SANITY * answer, 1e-9), DIAGNOSED)))
    some = Subset(target.examples, rows[:few])
    seen, whole = list[Finding](), len(some) == len(rows)
    radii = tuple(ball.radius for ball in config.balls)
    examined = Examined(target.eot.climbed, some, config.balls[-1], radii, seed=config.seed)
    to_make = [diagnosis for diagnosis in config.diagnoses if diagnosis.applies(examined)]
    try:
        # What was handed over is looked at in any case.
        sanity = sum(diagnosis.sanity for diagnosis in to_make)
        with clock.ending(share, unless=lambda: len(seen) < sanity):
            made = all_findings(examined, seen.append, to_make)
    except TimeIsUp:
        made, whole = tuple(seen), False
    findings = tuple(_of_target(target, some, one) for one in made)
    if not whole:
        names = {finding.name for finding in findings}
        return Diagnosed(findings, tuple(one.name for one in to_make if one.name not in names))
    write_json(path, {"findings": [_plain(finding) for finding in findings]})
    return Diagnosed(findings)


def _of_target(target: AuditTarget, some: Examples, finding: Finding) -> Finding:
    """What was handed over is looked at itself, not what attacks climb instead."""
    if finding.name == "randomness" and target.eot.draws is not None:
        return _as_judged(target, some)
    if finding.name == "probabilities" and target.as_logs:
        return probabilities(target.network, some)
    return finding


def _plain(finding: Finding) -> dict[str, Any]:
    """JSON has no NaN."""
    numbers = {name: number if math.isfinite(number) else None for name, number in finding.numbers.items()}
    return {**asdict(finding), "numbers": numbers}


def _finding(plain: dict[str, Any]) -> Finding:
    numbers = {name: math.nan if number is None else number for name, number in plain["numbers"].items()}
    return Finding(**{**plain, "numbers": numbers})


def _as_judged(target: AuditTarget, some: Examples) -> Finding:
    """Whether the network draws when it is asked, and what was done about it."""
    finding, draws = randomness(target.network, some), target.eot.draws
    assert draws is not None
    if finding.verdict == "fine":
        return finding
    evidence = f"{finding.evidence}; all numbers here are of the mean over {draws.verification} fixed draws"
    return replace(finding, verdict="suspicious", evidence=evidence, advice="use it by such a mean, too")


def missed_by_gradients(points: dict[str, Array], attacks: Sequence[Attack]) -> tuple[Finding, ...]:
    """Square comes last, so whatever it breaks, the gradients had missed; nothing is said of a suite without it."""
    broken = {attack.name: torch.from_numpy(points["by"] == i) for i, attack in enumerate(attacks)}
    black = {name: mask for name, mask in broken.items() if name.startswith("square")}
    white = {name: mask for name, mask in broken.items() if name not in black}
    # Another than that of the diagnoses, which is of fewer points and weaker attacks.
    return (replace(black_box(white, black), name="black box of AutoAttack"),) if black and white else ()


def settled(findings: Sequence[Finding], points: dict[str, Array], config: AuditConfig) -> tuple[Finding, ...]:
    """Weak attacks are no reason for doubt where each point is broken or certified: robust accuracy is exact."""
    # Where nothing stands and nothing is certified, robust accuracy is exact too, but not what the margins say.
    if bool(np.isnan(points["certified"]).all()) or not is_proven(points, config):
        return tuple(findings)
    # What is said of the network itself stays, and so does whatever a user's own diagnosis says.
    others = {one.name for one in config.diagnoses if one.sanity or one not in DIAGNOSES} | {CERTIFICATES}
    return tuple(
        finding
        if finding.verdict == "fine" or finding.name in others
        else replace(finding, verdict="fine", evidence=f"{finding.evidence}; {_PROVEN}", advice="")
        for finding in findings
    )
