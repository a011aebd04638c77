"""The region of a certificate: a ball around one point, intersected with the box of valid inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from widemargin.measure.certified.layers import Constants, Interval, Rows, Window, sliced
from widemargin.perturb.balls import Ball

_NEWTON_STEPS = 30
_NEWTON_PRECISION = 1e-9
_DUAL: dict[float | None, float] = {inf: 1, 2: 2, 1: inf}


@dataclass(frozen=True, eq=False)
class Region:
    """Around `center` [1, *F]; `down` (<= 0) and `up` (>= 0) say how far each feature may go within the box."""

    center: Tensor
    down: Tensor
    up: Tensor
    dual: float
    """Exponent of the dual norm."""
    radius: float

    @staticmethod
    def around(point: Tensor, ball: Ball) -> Region:
        """In double precision: what is left to worry about is then the network's own rounding."""
        if ball.p not in _DUAL:
            raise ValueError(f"a certificate is for a ball of Linf, L2 or L1, got {ball!r}")
        center = point[None].detach().double()
        down, up = ball.box.room(center)
        # Points may be outside by a rounding error.
        down, up = (side.expand_as(center) for side in (down.clamp_max(0), up.clamp_min(0)))
        return Region(center, down, up, _DUAL[ball.p], float(ball.radius))

    @property
    def moves(self) -> Tensor:
        """1 for the features that may change, 0 for those that the box holds fixed."""
        return (self.up > self.down).to(self.center)

    def of_radius(self, radius: float) -> Region:
        return replace(self, radius=radius)

    def within(self, window: Window) -> Region:
        """Restricted to these features."""
        center, down, up = (sliced(part, window) for part in (self.center, self.down, self.up))
        return replace(self, center=center, down=down, up=up)

    def interval(self) -> Interval:
        return Interval(*(self.center + side for side in self._steps()))

    def lowest(self, rows: Rows) -> Constants:
        """A lower bound on how much each linear function changes from the center; exact for Linf and without a box.

        For L2 and L1 the better of two: the box around the ball, and the dual norm of those coefficients whose feature
        has room to go where the function falls.
        """
        flat = rows.flatten(1)
        down, up = (side.flatten() for side in self._steps())
        falling = flat.clamp_max(0)
        rising = flat - falling
        in_box = rising @ down + falling @ up
        if self.dual == 1:
            return in_box
        movable = rising * (down < 0) + falling * (up > 0)
        return in_box.maximum(-self.radius * torch.linalg.vector_norm(movable, self.dual, dim=1))

    def reach(self, rows: Rows, start: Constants) -> Constants:
        """The radius up to which each linear function, `start` at the center, is above 0 by the bounds of `lowest`.

        By Newton's method: such a bound is convex and falls, so that steps from 0 end below its root or in it.
        """
        flat, (down, up) = rows.flatten(1), (side.flatten() for side in (self.down, self.up))
        size, room = flat.abs(), torch.where(flat > 0, -down, up)
        radius = torch.zeros_like(start)
        for _ in range(_NEWTON_STEPS):
            left = start - (size * room.minimum(radius[:, None])).sum(1)
            step = left.clamp_min(0) / (size * (room > radius[:, None])).sum(1)
            # 0 / 0: nothing left, and nothing falls.
            step = step.nan_to_num(0.0, posinf=inf)
            radius = radius + step
            if not bool((step > _NEWTON_PRECISION * radius).any()) or bool(radius.isinf().all()):
                break
        if self.dual != 1:
            length = torch.linalg.vector_norm(size * (room > 0), self.dual, dim=1)
            radius = radius.maximum((start.clamp_min(0) / length).nan_to_num(0.0, posinf=inf))
        return radius

    def at_center(self, rows: Rows) -> Constants:
        return rows.flatten(1) @ self.center.flatten()

    def _steps(self) -> tuple[Tensor, Tensor]:
        return self.down.clamp_min(-self.radius), self.up.clamp_max(self.radius)
