"""What a diagnosis says: a verdict, the evidence and advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["fine", "suspicious", "wrong"]
# Shares of points.  The first makes a network suspicious, the second makes its numbers wrong.
FLAT = (0.01, 0.1)
_LONGEST = 300
"""Letters of what a network raised."""


@dataclass(frozen=True)
class Finding:
    """What one diagnosis saw; `numbers` are those of the evidence, shares in 0..1."""

    name: str
    verdict: Verdict
    evidence: str
    advice: str
    """What to do; empty if all is fine."""
    numbers: Mapping[str, float]


_AGAIN = "see to it that the network answers there, and audit it again in another folder"


def failed_finding(name: str, why: str, so: str, advice: str = _AGAIN) -> Finding:
    """Of a part that failed, and what follows."""
    return Finding(name, "suspicious", f"it failed, so {so}: {why}", advice, {})


def sentence_of(problem: BaseException) -> str:
    """Whatever a network raises, in one line."""
    text = " ".join(str(problem).split())
    named = text if isinstance(problem, ValueError) and text else f"{type(problem).__name__}: {text}"
    return named if len(named) <= _LONGEST else f"{named[:_LONGEST]}..."


def graded(value: float, limits: tuple[float, float]) -> Verdict:
    return "wrong" if value > limits[1] else "suspicious" if value > limits[0] else "fine"


def worst_of(*verdicts: Verdict) -> Verdict:
    order: tuple[Verdict, ...] = ("fine", "suspicious", "wrong")
    return max(verdicts, key=order.index)
