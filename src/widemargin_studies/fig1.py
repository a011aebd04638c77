"""Figure 1: what loss-driven and uncertainty-driven perturbations do to points close to and far from the boundary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.lines import Line2D

from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import BEST, BOUNDARY, TINTS, draw_landscape, panels
from widemargin.report.store import Store
from widemargin.report.verdicts import in_most_seeds
from widemargin_studies import pictorial
from widemargin_studies.pictorial import NORMS, ONE_STEP, PAIRS, RADII, SHOWN, Case, Moves, StudyOfMoves

SMALL, LARGE = RADII[0], RADII[-1]


@dataclass(frozen=True)
class Fig1(StudyOfMoves):
    TITLE: str = "Fig. 1: where LDP and UDP drive the points"

    def report(self, store: Store) -> Report:
        results = self.work.moves(store)
        return Report(
            self.TITLE,
            "Does climbing the loss drive points across the boundary, and does climbing the uncertainty stop there?",
            self.work.settings(),
            verdicts(results, self.work.errors(store)),
            (pictorial.table(results, (SMALL, LARGE)),),
            (self.picture(store, results),),
        )

    def picture(self, store: Store, results: Mapping[Case, Moves]) -> Picture:
        figure, ((small, loss, entropy),) = panels(1, 3, size=3.6)
        grid = self.work.landscape(store, SHOWN)
        small.contourf(*grid, levels=[-1e9, 0, 1e9], colors=TINTS[:2])
        draw_landscape(loss, *grid[:2], pictorial.loss_of(1, grid[2]), "Purples")
        draw_landscape(entropy, *grid[:2], pictorial.entropy_of(grid[2]), "Greens")
        for axes, radius, name in ((small, SMALL, "LDP"), (loss, LARGE, "LDP"), (entropy, LARGE, "UDP")):
            pictorial.draw_moves(axes, grid, results["l2", radius, name], SHOWN, radius)
        ends = results["l2", SMALL, "UDP"].end[SHOWN]
        small.scatter(ends[:, 0], ends[:, 1], marker="x", s=30, color="#111111", linewidths=1.2, zorder=5)
        small.set_title(f"(a) eps = {SMALL}: LDP (arrows), UDP (x)", fontsize=10)
        loss.set_title(f"(b) eps = {LARGE}: LDP, loss of the orange class", fontsize=10)
        entropy.set_title(f"(c) eps = {LARGE}: UDP, entropy", fontsize=10)
        lines = [Line2D([], [], color=BOUNDARY, linewidth=1.4), Line2D([], [], color=BEST, linestyle="dashed")]
        figure.legend(
            lines, ["network's boundary θ", "best boundary θ*"], loc="outside lower center", ncols=2, fontsize=9
        )
        return Picture(
            "fig1",
            figure,
            f"Seed {self.work.seeds[SHOWN]}, l2 steps; darker is higher. Arrows: from a clean point to where the "
            "search takes it; dotted: the ball that bounds them.",
        )


STUDY = Fig1()


def verdicts(results: Mapping[Case, Moves], errors: list[int]) -> tuple[Verdict, ...]:
    apart = {norm: pictorial.apart(results, norm, SMALL) for norm in NORMS}
    past_best = [results[norm, LARGE, "LDP"].beyond_best for norm in NORMS]
    return (
        Verdict(
            "Every network classifies its four points.",
            in_most_seeds([error == 0 for error in errors]),
            f"errors in {len(errors)} seeds: {' '.join(map(str, errors))}",
        ),
        Verdict(
            f"For eps = {SMALL} <= eps1 = {PAIRS.near}, LDP and UDP coincide within one step.",
            pictorial.in_most(apart[norm] <= ONE_STEP[norm] for norm in NORMS),
            "farthest apart: "
            + ", ".join(f"{norm} {apart[norm].max():.4f} (step {ONE_STEP[norm]:.3f})" for norm in NORMS),
        ),
        Verdict(
            f"For eps = {LARGE} >= eps2 = {PAIRS.far}, LDP takes every point across the best boundary: wrong labels.",
            pictorial.in_most(beyond > 0 for beyond in past_best),
            pictorial.of_both(results, LARGE, "LDP", lambda moved: pictorial.across(moved.beyond_best)),
        ),
        Verdict(
            f"For eps = {LARGE}, UDP takes no point across the network's boundary by more than one step.",
            pictorial.in_most(results[norm, LARGE, "UDP"].beyond_network <= ONE_STEP[norm] for norm in NORMS),
            pictorial.of_both(results, LARGE, "UDP", lambda moved: pictorial.across(moved.beyond_network)),
        ),
        Verdict(
            "UDP therefore takes no point across the best boundary.",
            pictorial.in_most(results[norm, LARGE, "UDP"].beyond_best == 0 for norm in NORMS),
            pictorial.of_both(results, LARGE, "UDP", lambda moved: pictorial.across(moved.beyond_best))
            + ": as far as the network's boundary is off the best one",
        ),
    )
