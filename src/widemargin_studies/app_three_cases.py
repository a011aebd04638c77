"""App. C: LDP against UDP for a radius below, between and above the two distances to the best boundary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import draw_landscape, label_grid, panels
from widemargin.report.store import Store
from widemargin_studies import pictorial
from widemargin_studies.pictorial import (
    FAR,
    NEAR,
    NORMS,
    ONE_STEP,
    PAIRS,
    RADII,
    SHOWN,
    STEPS,
    Case,
    Moves,
    StudyOfMoves,
)

SMALL, MIDDLE, LARGE = RADII


@dataclass(frozen=True)
class ThreeCases(StudyOfMoves):
    TITLE: str = "App. C: small, middle and large radius, LDP against UDP"

    def report(self, store: Store) -> Report:
        results = self.work.moves(store)
        return Report(
            self.TITLE,
            "Does UDP adapt the effective radius to each point, where LDP uses all of it everywhere?",
            self.work.settings(),
            verdicts(results),
            (pictorial.table(results, RADII),),
            (self.picture(store, results),),
        )

    def picture(self, store: Store, results: Mapping[Case, Moves]) -> Picture:
        figure, axes = panels(2, 3, size=3.2)
        x, y, ahead = grid = self.work.landscape(store, SHOWN)
        shades = {"LDP": (pictorial.loss_of(1, ahead), "Purples"), "UDP": (pictorial.entropy_of(ahead), "Greens")}
        for row, (name, (values, colours)) in zip(axes, shades.items(), strict=True):
            for panel, radius in zip(row, RADII, strict=True):
                draw_landscape(panel, x, y, values, colours)
                pictorial.draw_moves(panel, grid, results["l2", radius, name], SHOWN, radius)
        cases = (f"1°: eps = {SMALL} ≤ eps1", f"2°: eps1 < eps = {MIDDLE} < eps2", f"3°: eps = {LARGE} ≥ eps2")
        label_grid(axes, cases, ("LDP, on the loss of the orange class", "UDP, on the entropy"))
        return Picture(
            "app-three-cases",
            figure,
            f"Seed {self.work.seeds[SHOWN]}, l2 steps; darker is higher. Solid: the network's boundary; dashed: the "
            f"best one, {PAIRS.near} = eps1 from the lower points and {PAIRS.far} = eps2 from the upper ones. Arrows: "
            f"{STEPS} steps; dotted: the ball that bounds them.",
        )


STUDY = ThreeCases()


def verdicts(results: Mapping[Case, Moves]) -> tuple[Verdict, ...]:
    apart = {(norm, radius): pictorial.apart(results, norm, radius) for norm in NORMS for radius in RADII}
    udp = {(norm, radius): results[norm, radius, "UDP"] for norm in NORMS for radius in RADII}
    deepest = {radius: max(float(udp[norm, radius].beyond_network.max()) for norm in NORMS) for radius in RADII}
    farther = udp["l2", LARGE].length - udp["l2", MIDDLE].length
    near, far = (
        {radius: float(udp["l2", radius].length[:, points].mean()) for radius in RADII} for points in (NEAR, FAR)
    )
    return (
        Verdict(
            f"1°, eps = {SMALL} <= eps1 = {PAIRS.near}: LDP and UDP coincide (within one step), LDP takes none across.",
            pictorial.in_most(
                [
                    *(apart[norm, SMALL] <= ONE_STEP[norm] for norm in NORMS),
                    *(~beyond for beyond in _across(results, SMALL)),
                ]
            ),
            f"farthest apart {max(apart[norm, SMALL].max() for norm in NORMS):.4f}; {_counts(results, SMALL)}",
        ),
        Verdict(
            f"2°, eps1 < eps = {MIDDLE} < eps2: LDP takes the near points across the best boundary, not the far ones.",
            pictorial.in_most(
                np.concatenate([beyond[:, NEAR], ~beyond[:, FAR]], 1) for beyond in _across(results, MIDDLE)
            ),
            _counts(results, MIDDLE),
        ),
        Verdict(
            f"3°, eps = {LARGE} >= eps2 = {PAIRS.far}: LDP takes all of them across.",
            pictorial.in_most(_across(results, LARGE)),
            _counts(results, LARGE),
        ),
        Verdict(
            "In no case does UDP cross the network's boundary by more than one step.",
            pictorial.in_most(moved.beyond_network <= ONE_STEP[norm] for (norm, _), moved in udp.items()),
            "deepest: " + ", ".join(f"{deepest[radius]:.3f} at eps {radius}" for radius in RADII),
        ),
        Verdict(
            "UDP adapts locally: from case 2° to 3° its near points go no farther, its far points do.",
            pictorial.in_most(
                [
                    abs(farther[:, NEAR].mean(1, keepdims=True)) <= ONE_STEP["l2"],
                    farther[:, FAR].mean(1, keepdims=True) > ONE_STEP["l2"],
                ]
            ),
            f"l2, mean way at eps {SMALL} / {MIDDLE} / {LARGE}: near "
            f"{' / '.join(f'{near[radius]:.3f}' for radius in RADII)}, far "
            f"{' / '.join(f'{far[radius]:.3f}' for radius in RADII)}",
        ),
    )


def _across(results: Mapping[Case, Moves], radius: float) -> list[NDArray[Any]]:
    """[seed, point] for each norm: did LDP take it across the best boundary?"""
    return [results[norm, radius, "LDP"].beyond_best > 0 for norm in NORMS]


def _crossed(results: Mapping[Case, Moves], radius: float, points: list[int], name: str = "LDP") -> int:
    """How many points ended across the best boundary, over seeds and norms."""
    return sum(int((results[norm, radius, name].beyond_best[:, points] > 0).sum()) for norm in NORMS)


def _counts(moves: Mapping[Case, Moves], radius: float) -> str:
    of = 2 * pictorial.seeds_of(moves) * len(NORMS)
    return "across the best boundary: " + "; ".join(
        f"{name} near {_crossed(moves, radius, NEAR, name)} and far {_crossed(moves, radius, FAR, name)} of {of} each"
        for name in pictorial.OBJECTIVES
    )
