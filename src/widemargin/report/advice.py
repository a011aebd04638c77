"""What to do about a finding of an audit, and the command that does it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from widemargin.auditing.result import Audit
from widemargin.measure.diagnostics import DIAGNOSES, Finding

Words = Mapping[str, tuple[str, ...]]
"""Of the command that made an audit, by option; those without an option under "".  Empty if Python made it."""
_OF_ATTACKS = {one.name for one in DIAGNOSES if not one.sanity} | {"black box of AutoAttack"}
_LARGER = (2, 4)
"""Times the largest radius."""


@dataclass(frozen=True)
class Advice:
    text: str
    changes: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    """Options of the command that makes the audit again; None leaves one out.  Empty if a command is no help."""

    def command(self, words: Words) -> str:
        if not words or not self.changes:
            return ""
        changed = {**words, **self.changes}
        pieces = [piece for option, values in changed.items() if values is not None for piece in (option, *values)]
        return shlex.join(piece for piece in pieces if piece)


def advice_on(audit: Audit, finding: Finding) -> Advice:
    """None is needed where all is fine."""
    if finding.verdict == "fine":
        return Advice("")
    if finding.name == "inputs in box":
        low, high = (repr(float(finding.numbers[name])) for name in ("lowest", "highest"))
        return Advice(
            "Give the box of valid inputs, or rescale the data to the box that was taken. The command has the range of "
            "these points; if you know that of all valid inputs, give it instead.",
            {"--box": (low, high)},
        )
    if finding.name not in _OF_ATTACKS and "it failed, so it is left out" not in finding.evidence:
        return Advice(_sentence(finding.advice))
    if "it failed, so" in finding.evidence:
        return Advice(
            "Fix the error in the network, and audit it again in another folder.",
            {"--out": ("audit-again",)},
        )
    radii = [ball.radius for ball in audit.config.balls]
    more = (*radii, *(times * radii[-1] for times in _LARGER))
    return Advice(
        "Robust accuracy counts the worst of all attacks, point by point, also of those without gradients: read it as "
        "an upper bound. Audit at larger radii, too: if accuracy does not fall to 0 there, gradients are masked.",
        {"--eps": tuple(f"{radius:.12g}" for radius in more)},
    )


def advice_on_time(left_out: tuple[str, ...]) -> Advice:
    return Advice(
        f"Continue without a budget: it runs the other {len(left_out)} and repeats nothing.", {"--budget": None}
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
