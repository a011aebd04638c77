"""App. D.3: the Narrow Corridor for five radii, LDP-PGD, TRADES in both forms and UDPR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from widemargin.data.toy import NarrowCorridor
from widemargin.method import Method
from widemargin.perturb.balls import OPEN, Ball, Linf
from widemargin.recipes import pgd, trades, trades_cross_entropy, udpr
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import draw_regions, label_grid, panels
from widemargin.report.store import Store
from widemargin.report.tables import Table, mean_std
from widemargin.report.verdicts import all_of, in_most_seeds
from widemargin.runs.run import Run
from widemargin.training.plan import Plan
from widemargin.workers import Workers
from widemargin_studies import plane

ALPHA, STEPS = 0.05, 10
PAPERS_TRADES = "TRADES, the paper's"
METHODS: Mapping[str, Callable[[Ball], Method]] = {
    "LDP-PGD": lambda ball: pgd(ball, ALPHA, STEPS),
    "TRADES": lambda ball: trades(ball, ALPHA, STEPS, weight=6.0),
    PAPERS_TRADES: lambda ball: trades_cross_entropy(ball, ALPHA, STEPS, weight=1.0),
    "UDPR": lambda ball: udpr(ball, ALPHA, STEPS, weight=1.0),
}


@dataclass(frozen=True)
class CorridorSweep:
    TITLE: str = "App. D.3: the corridor over five radii"
    CORE_MINUTES: float = 18.0
    seeds: Sequence[int] = range(200, 210)
    radii: tuple[float, ...] = (0.05, 0.15, 0.25, 0.35, 0.45)
    plan: Plan = plane.FULL_BATCH
    grids: plane.Grids = plane.GRIDS

    def cells(self) -> dict[tuple[str, float], list[Run]]:
        return {
            (name, radius): plane.runs_of(NarrowCorridor(), method(Linf(radius, OPEN)), self.plan, self.seeds)
            for name, method in METHODS.items()
            for radius in self.radii
        }

    def run(self, store: Store, workers: Workers) -> None:
        names = {group[0].method: f"{name} {radius}" for (name, radius), group in self.cells().items()}
        workers.do(
            plane.jobs([run for group in self.cells().values() for run in group], names, store, self.grids),
            "Corridor sweep",
        )

    def missing(self, store: Store) -> int:
        return plane.missing([run for group in self.cells().values() for run in group], store)

    def report(self, store: Store) -> Report:
        results = {cell: [plane.measured(run, store) for run in group] for cell, group in self.cells().items()}
        errors = {cell: [m.errors for m in group] for cell, group in results.items()}
        rows = [
            (
                name,
                f"{radius}",
                f"{min(errors[name, radius])} to {max(errors[name, radius])}",
                mean_std([m.worst_fraction for m in results[name, radius]]),
                mean_std([m.mean_fraction for m in results[name, radius]]),
            )
            for name, radius in results
        ]
        table = Table(
            "Narrow Corridor: errors and margins over the radius",
            ("method", "radius", f"errors of {len(results['UDPR', self.radii[0]][0].margin)}", "worst", "mean"),
            tuple(rows),
            f"Over {len(self.seeds)} seeds; margins as a share of the best possible.",
        )
        return Report(
            self.TITLE,
            "How sensitive is each method to the radius?",
            f"Seeds {self.seeds[0]}..{self.seeds[-1]}; step {ALPHA}, {STEPS} steps, as published; TRADES with KL and "
            f"weight 6; the paper's: cross-entropy, weight 1; {self.plan}; MLP {plane.NETWORK.widths}.",
            self._verdicts(errors),
            (table,),
            (self._figure(store),),
        )

    def _verdicts(self, errors: dict[tuple[str, float], list[int]]) -> tuple[Verdict, ...]:
        admissible = float(NarrowCorridor().draw().best_margins(float("inf")).min())
        large = [radius for radius in self.radii if radius > admissible]
        return (
            *(
                Verdict(
                    f"{name} misclassifies training points at every radius above the admissible {admissible:.2f}, with "
                    "most seeds.",
                    all_of(in_most_seeds([count > 0 for count in errors[name, radius]]) for radius in large),
                    self._ranges(name, errors),
                )
                for name in ("LDP-PGD", "TRADES", PAPERS_TRADES)
            ),
            Verdict(
                "UDPR classifies the whole training set at every radius, with most seeds.",
                all_of(in_most_seeds([count == 0 for count in errors["UDPR", radius]]) for radius in self.radii),
                self._ranges("UDPR", errors),
            ),
        )

    def _ranges(self, name: str, errors: dict[tuple[str, float], list[int]]) -> str:
        return "errors: " + ", ".join(f"{min(errors[name, r])} to {max(errors[name, r])} at {r}" for r in self.radii)

    def _figure(self, store: Store) -> Picture:
        figure, axes = panels(len(METHODS), len(self.radii))
        for (name, radius), group in self.cells().items():
            draw_regions(axes[list(METHODS).index(name)][self.radii.index(radius)], plane.picture(group[0], store))
        label_grid(axes, [f"radius {radius}" for radius in self.radii], list(METHODS))
        return Picture("corridor-sweep", figure, f"Decision regions after training (seed {self.seeds[0]}).")


STUDY = CorridorSweep()
