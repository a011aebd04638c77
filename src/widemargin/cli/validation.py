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
    category_changes: int = 0
    columns: tuple[tuple[int, ...], ...] = ()
    """Of which categories may change, the places of their features."""

    def __str__(self) -> str:
        changes = f", {self.changes}" if self.changes else ""
        return f"{self.name}-{self.steps} {self.norm} {radius_text(self.eps)}{changes}"

    @property
    def changes(self) -> str:
        """Of categories; nothing if there are none."""
        if not self.category_changes:
            return ""
        return f"{self.category_changes} category change{'s' * (self.category_changes > 1)}"

    @property
    def effort(self) -> str:
        """What must be the same for two figures to be compared, beside the ball."""
        places = ", ".join(f"{column[0]} to {column[-1]}" for column in self.columns)
        changes = f", {self.changes} in features {places}" if self.changes else ""
        return f"{self.steps} steps of {self.alpha:g}{changes}"

    @property
    def options(self) -> str:
        """For an audit in the same ball."""
        return f"--eps {radius_text(self.eps)}" + ("" if self.norm == "linf" else f" --norm {self.norm}")


def validation_attack(run: Mapping[str, Any]) -> ValidationAttack | str | None:
    """None if there is none; one of the user's own by its repr.  `run` is what run.yaml has under `run`."""
    attack = run.get("Run", run)["validation"]["Validation"]["attack"]
    if attack is None:
        return None
    changes = 0
    columns: tuple[tuple[int, ...], ...] = ()
    if "WithCategoryChanges" in attack:
        allowed = attack["WithCategoryChanges"]["changes"]["CategoryChanges"]
        attack, changes = attack["WithCategoryChanges"]["search"], allowed["most"]
        columns = tuple(tuple(column) for column in allowed["columns"])
    if "Search" not in attack:
        return str(attack)
    ((norm, ball),) = attack["Search"]["ball"].items()
    ascent = attack["Search"]["ascent"]["Ascent"]
    ((_, steps),), ((_, step),) = ascent["steps"].items(), ascent["step"].items()
    radius, length = float(ball["radius"]), step["size"]
    return ValidationAttack("PGD", str(norm).lower(), radius, steps["most"], length, changes, columns)


def figures_text(figures: Mapping[str, Any], attack: ValidationAttack | str | None) -> str:
    """Accuracies in percent, the robust one with its attack, norm and radius."""
    parts = [f"clean {100 * figures['clean']:.2f} %"] if "clean" in figures else []
    if "robust" in figures:
        parts.append(f"robust {100 * figures['robust']:.2f} %" + (f" ({attack})" if attack else ""))
    return ", ".join(parts)
