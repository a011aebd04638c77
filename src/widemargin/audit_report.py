"""What `wm.audit` returns: the figures of an audit as values, its adversarial points, and its page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor

from widemargin.auditing.adversarial import npz
from widemargin.auditing.result import Array, Audit
from widemargin.files import write_json, write_whole
from widemargin.measure.diagnostics import Finding
from widemargin.measure.interval import Proportion
from widemargin.report.audit_page import page


@final
@dataclass(frozen=True, eq=False)
class AuditReport:
    """Everything by point is in the order of the data."""

    result: Audit
    """All there is: who broke which point, seconds, notes."""

    @property
    def clean(self) -> Proportion:
        """Accuracy before any attack, with its 95 % interval: `.fraction`, `.low`, `.high`, `.n`."""
        return self.result.clean

    @property
    def robust(self) -> Mapping[float, Proportion]:
        """For every eps, accuracy under all attacks; empty if nothing could be attacked."""
        return self._by_eps(self.result.robust) if self.result.attacks else {}

    @property
    def certified(self) -> Mapping[float, Proportion]:
        """For every eps, the proven accuracy; empty if there are no certificates."""
        return {} if self.result.certified is None else self._by_eps(self.result.certified)

    @property
    def rows(self) -> Array:
        """Which points of the data were audited."""
        return np.asarray(self.result.points["row"][self._order])

    @property
    def margins(self) -> Array:
        """Upper bounds of the distances to the boundary: 0 for points that are wrong, or so by a change of category
        alone, infinite if none is known."""
        return np.asarray(self.result.points["margin"][self._order])

    @property
    def adversarial(self) -> Tensor:
        """For each point the nearest place that minimum-norm attacks found where the model is wrong, at any distance.

        The point itself if it is wrong already, or nothing was found.
        """
        if "place" not in self.result.points:
            raise ValueError(f"there are no adversarial points, since nothing was attacked: {self}")
        return torch.from_numpy(self.result.points["place"][self._order])

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the diagnoses say of whether these numbers can be trusted."""
        return self.result.findings

    def save(self, path: Path | str) -> Path:
        """As a page (.html), as numbers (.json), or its adversarial examples (.npz): as `widemargin audit` does."""
        path = Path(path)
        if path.suffix not in (".html", ".json", ".npz"):
            raise ValueError(f"a report is saved as .html or .json, its adversarial examples as .npz, got {path}")
        examples = self.result.adversarial
        if path.suffix == ".npz" and examples is None:
            raise ValueError(f"there are no adversarial examples, since nothing was attacked: {self}")
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".json":
            write_json(path, self.result.summary())
        elif examples is not None and path.suffix == ".npz":
            write_whole(path, npz(examples))
        else:
            write_whole(path, page(self.result).html().encode())
        return path

    def __str__(self) -> str:
        return page(self.result).summary + self._why_unattacked

    @property
    def _why_unattacked(self) -> str:
        """Empty if points were attacked, or the reason is not that they lie outside the box."""
        outside = [one for one in self.findings if one.name == "inputs in box" and one.verdict == "wrong"]
        if self.result.attacks or not outside:
            return ""
        low, high = (float(outside[0].numbers[name]) for name in ("lowest", "highest"))
        if not math.isfinite(low) or not math.isfinite(high):
            return ""
        low, high = (0, 255) if low >= 0 and 1 < high <= 255 else (math.floor(low), math.ceil(high))
        return (
            f" The reason: {outside[0].evidence}. Scale the inputs to the box if the model expects that, or give their "
            f"own, box=wm.Box({low}, {high}), with eps in its units."
        )

    @property
    def _order(self) -> Array:
        return np.argsort(self.result.points["row"])

    def _by_eps(self, counted: tuple[Proportion, ...]) -> Mapping[float, Proportion]:
        return {ball.radius: one for ball, one in zip(self.result.config.balls, counted, strict=True)}
