"""Examples that transfer from a surrogate: tried on the points that withstand all attacks of an audit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from widemargin.auditing.config import AuditConfig
from widemargin.auditing.guarded import uncertified
from widemargin.auditing.result import Array
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Subset
from widemargin.measure.curve import Refuted, check_certificates
from widemargin.measure.diagnostics import Finding, stood_in
from widemargin.measure.surrogate import fooled, surrogate

TRANSFER = "transfer from a surrogate"
"""Its name among the attacks."""
FITTED = 500
"""Points whose answers a surrogate is fitted to."""


@dataclass(frozen=True, eq=False)
class Transferred:
    """How far each point is from what a surrogate gave away, and what the surrogate was."""

    distance: Array
    kind: str
    agreement: float


def transferred(target: AuditTarget, config: AuditConfig, points: dict[str, Array]) -> Transferred:
    rows, eot, largest = torch.from_numpy(points["row"]), target.eot, config.balls[-1]
    # The same points however many are audited, so that a point's record does not depend on that.
    some = Subset(target.examples, config.order(len(target.examples))[:FITTED])
    fitted = surrogate(eot.climbed, some, largest, config.seed, config.surrogate_updates)
    standing = torch.from_numpy(points["breaks"] == len(config.balls)).nonzero()[:, 0]
    distance = torch.full((len(rows),), torch.inf, dtype=torch.float64)
    if len(standing):
        left_over = Subset(target.examples, rows[standing])
        distance[standing] = fooled(eot.network, left_over, largest, fitted, eot.rows_at_once)
    return Transferred(distance.numpy(), fitted.kind, fitted.agreement)


def with_surrogate(
    points: dict[str, Array], moved: Transferred, config: AuditConfig, number: int
) -> tuple[Finding, ...]:
    """The points now count as broken where they were; what that refutes of the certificates is a finding too."""
    try:
        return (_counted(points, moved, config, number),)
    except Refuted as problem:
        # What was found counts; what was proven does not.
        points["certified"] = np.full_like(points["certified"], np.nan)
        return (_counted(points, moved, config, number), uncertified(str(problem)))


def _counted(points: dict[str, Array], moved: Transferred, config: AuditConfig, number: int) -> Finding:
    """A point that was broken counts as broken, from the ball on that holds the place."""
    distance, standing = moved.distance, points["breaks"] == len(config.balls)
    broken = standing & np.isfinite(distance)
    radii = [ball.radius for ball in config.balls]
    from_ball = np.minimum(np.searchsorted(radii, distance[broken] * (1 - 1e-5)), len(radii) - 1)
    # NaN, where there is no certificate, refutes nothing.
    check_certificates(*(torch.from_numpy(values) for values in (distance, points["certified"], points["row"])))
    points["breaks"][broken], points["by"][broken] = from_ball, number
    points["margin"] = np.minimum(points["margin"], distance)
    return stood_in(torch.from_numpy(~standing), torch.from_numpy(broken), moved.kind, moved.agreement)
