"""The attack of a run's validation, as its description has it: a robust figure is never printed without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from widemargin.report.tables import radius_text


@dataclass(frozen=True)
class ValidationAttack:
    name: str
    norm: str
    eps: float
    steps: int
    alpha: float

    def __str__(self) -> str:
        return f"{self.name}-{self.steps} {self.norm} {radius_text(self.eps)}"

    @property
    def options(self) -> str:
        """For an audit in the same ball."""
        return f"--eps {radius_text(self.eps)}" + ("" if self.norm == "linf" else f" --norm {self.norm}")


def validation_attack(run: Mapping[str, Any]) -> ValidationAttack | str | None:
    """None if there is none; one of the user's own by its repr.  `run` is what run.yaml has under `run`."""
    attack = run.get("Run", run)["validation"]["Validation"]["attack"]
    if attack is None:
        return None
    if "Search" not in attack:
        return str(attack)
    ((norm, ball),) = attack["Search"]["ball"].items()
    ascent = attack["Search"]["ascent"]["Ascent"]
    ((_, steps),), ((_, step),) = ascent["steps"].items(), ascent["step"].items()
    return ValidationAttack("PGD", str(norm).lower(), float(ball["radius"]), steps["most"], step["size"])


def figures_text(figures: Mapping[str, Any], attack: ValidationAttack | str | None) -> str:
    """Accuracies in percent, the robust one with its attack, norm and radius."""
    parts = [f"clean {100 * figures['clean']:.2f} %"] if "clean" in figures else []
    if "robust" in figures:
        parts.append(f"robust {100 * figures['robust']:.2f} %" + (f" ({attack})" if attack else ""))
    return ", ".join(parts)
