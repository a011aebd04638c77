"""App. D.3: the Narrow Corridor for five radii, LDP-PGD, TRADES in both forms and UDPR."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
from widemargin.workers import Workers
from widemargin_studies import plane

TITLE = "App. D.3: the corridor over five radii"
CORE_MINUTES = 18.0
SEEDS = range(200, 210)
RADII = (0.05, 0.15, 0.25, 0.35, 0.45)
ALPHA, STEPS = 0.05, 10
PAPERS_TRADES = "TRADES, the paper's"
METHODS: Mapping[str, Callable[[Ball], Method]] = {
    "LDP-PGD": lambda ball: pgd(ball, ALPHA, STEPS),
    "TRADES": lambda ball: trades(ball, ALPHA, STEPS, weight=6.0),
    PAPERS_TRADES: lambda ball: trades_cross_entropy(ball, ALPHA, STEPS, weight=1.0),
    "UDPR": lambda ball: udpr(ball, ALPHA, STEPS, weight=1.0),
}


def cells() -> dict[tuple[str, float], list[Run]]:
    return {
        (name, radius): plane.runs_of(NarrowCorridor(), method(Linf(radius, OPEN)), plane.FULL_BATCH, SEEDS)
        for name, method in METHODS.items()
        for radius in RADII
    }


def run(store: Store, workers: Workers) -> None:
    names = {group[0].method: f"{name} {radius}" for (name, radius), group in cells().items()}
    plane.complete([run for group in cells().values() for run in group], names, store, workers, "Corridor sweep")


def missing(store: Store) -> int:
    return plane.missing([run for group in cells().values() for run in group], store)


def report(store: Store) -> Report:
    results = {cell: [plane.measured(run, store) for run in group] for cell, group in cells().items()}
    errors = {cell: [m.errors for m in group] for cell, group in results.items()}
    rows = [
        (
            name,
            f"{radius}",
            f"{min(errors[name, radius])} to {max(errors[name, radius])}",
            mean_std([m.worst for m in results[name, radius]]),
            mean_std([m.mean for m in results[name, radius]]),
        )
        for name, radius in results
    ]
    table = Table(
        "Narrow Corridor: errors and margins over the radius",
        ("method", "radius", f"errors of {len(results['UDPR', RADII[0]][0].margin)}", "worst", "mean"),
        tuple(rows),
        f"Over {len(SEEDS)} seeds; margins as a share of the best possible.",
    )
    return Report(
        TITLE,
        "How sensitive is each method to the radius?",
        f"Seeds {SEEDS[0]}..{SEEDS[-1]}; step {ALPHA}, {STEPS} steps, as published; TRADES with KL and weight 6; "
        f"the paper's: cross-entropy, weight 1; {plane.FULL_BATCH}; MLP {plane.NETWORK.widths}.",
        _verdicts(errors),
        (table,),
        (_figure(store),),
    )


def _verdicts(errors: dict[tuple[str, float], list[int]]) -> tuple[Verdict, ...]:
    admissible = float(NarrowCorridor().draw().best_margins(float("inf")).min())
    large = [radius for radius in RADII if radius > admissible]
    return (
        *(
            Verdict(
                f"{name} misclassifies training points at every radius above the admissible {admissible:.2f}, with "
                "most seeds.",
                all_of(in_most_seeds([count > 0 for count in errors[name, radius]]) for radius in large),
                _ranges(name, errors),
            )
            for name in ("LDP-PGD", "TRADES", PAPERS_TRADES)
        ),
        Verdict(
            "UDPR classifies the whole training set at every radius, with most seeds.",
            all_of(in_most_seeds([count == 0 for count in errors["UDPR", radius]]) for radius in RADII),
            _ranges("UDPR", errors),
        ),
    )


def _ranges(name: str, errors: dict[tuple[str, float], list[int]]) -> str:
    return "errors: " + ", ".join(f"{min(errors[name, r])} to {max(errors[name, r])} at {r}" for r in RADII)


def _figure(store: Store) -> Picture:
    figure, axes = panels(len(METHODS), len(RADII))
    for (name, radius), group in cells().items():
        draw_regions(axes[list(METHODS).index(name)][RADII.index(radius)], plane.picture(group[0], store))
    label_grid(axes, [f"radius {radius}" for radius in RADII], list(METHODS))
    return Picture("corridor-sweep", figure, f"Decision regions after training (seed {SEEDS[0]}).")
