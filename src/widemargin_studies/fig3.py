"""Figure 3: standard, LDP-PGD, TRADES, UDP-PGD and UDPR on the Narrow Corridor and on LMS-5."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from widemargin.data.toy import LMS5, NarrowCorridor, PointSet
from widemargin.measure.margin import Margins
from widemargin.method import Method
from widemargin.perturb.balls import L2, OPEN, Ball, Linf
from widemargin.recipes import pgd, standard, trades, trades_cross_entropy, udp, udpr
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import draw_regions, label_grid, panels
from widemargin.report.store import Store
from widemargin.report.tables import Table, mean_std
from widemargin.report.verdicts import Estimate, Outcome, all_of, greater, in_most_seeds, mean_of
from widemargin.runs.run import Run
from widemargin.training.plan import Adam, Plan, Updates
from widemargin.workers import Job, Workers
from widemargin_studies import plane

CLOSE = 0.9
"""A boundary is called close to the max-margin one if its smallest margin is at least this share of the best."""

CORRIDOR, SLABS = NarrowCorridor(), LMS5(seed=1)
Plans = Mapping[PointSet, Plan]
PLANS: Plans = {CORRIDOR: plane.FULL_BATCH, SLABS: plane.BATCHES_OF_100}
SLOWLY = Updates(10_000), Adam(5e-4)
"""Much longer, at a small constant rate."""
TITLES: Mapping[PointSet, str] = {CORRIDOR: "Narrow Corridor", SLABS: "LMS-5"}
NORMS: Mapping[str, float] = {"l2": 2.0, "l-infinity": math.inf}


def admissible(p: float) -> float:
    """On the slabs, the largest radius under which no two classes meet (paper: "under assumption AT-Asm")."""
    return int(1000 * float(SLABS.draw().best_margins(p).min())) / 1000


ADMISSIBLE = admissible(math.inf)

# On the corridor, a radius that is too large for its narrow part only.
VIOLATING = 0.25
PAPERS_TRADES, UDPR, UDP_L2, UDPR_L2 = "TRADES, the paper's", "UDPR, alpha .01", "UDP-PGD, l2", "UDPR, alpha .01, l2"


def four(ball: Ball, alpha: float) -> dict[str, Method]:
    """Those that the figure names."""
    return {
        "standard": standard(),
        "LDP-PGD": pgd(ball, alpha, steps=10),
        "TRADES": trades(ball, alpha, steps=10, weight=6.0),
        "UDP-PGD": udp(Linf(0.5, OPEN), alpha=0.05, steps=10),
    }


def further(ball: Ball, alpha: float, in_l2: Ball) -> dict[str, Method]:
    """TRADES as the paper's tables have it, UDPR as the figure's file is named, and all in l2."""
    return {
        PAPERS_TRADES: trades_cross_entropy(ball, alpha, steps=10, weight=1.0),
        UDPR: udpr(Linf(0.5, OPEN), alpha=0.01, steps=50, weight=1.0),
        "UDPR, alpha .1": udpr(Linf(0.5, OPEN), alpha=0.1, steps=50, weight=1.0),
        "LDP-PGD, l2": pgd(in_l2, alpha, steps=10),
        "TRADES, l2": trades(in_l2, alpha, steps=10, weight=6.0),
        UDP_L2: udp(L2(0.5, OPEN), alpha=0.05, steps=10),
        UDPR_L2: udpr(L2(0.5, OPEN), alpha=0.01, steps=50, weight=1.0),
    }


FOUR: Mapping[PointSet, Mapping[str, Method]] = {
    CORRIDOR: four(Linf(VIOLATING, OPEN), 0.05),
    SLABS: four(Linf(ADMISSIBLE, OPEN), ADMISSIBLE / 5),
}
METHODS: Mapping[PointSet, Mapping[str, Method]] = {
    CORRIDOR: {**FOUR[CORRIDOR], **further(Linf(VIOLATING, OPEN), 0.05, L2(VIOLATING, OPEN))},
    SLABS: {**FOUR[SLABS], **further(Linf(ADMISSIBLE, OPEN), ADMISSIBLE / 5, L2(admissible(2.0), OPEN))},
}
LONGER: Mapping[str, str] = {"standard, longer": "standard", "UDP-PGD, longer": "UDP-PGD"}
SHOWN = ("standard", "LDP-PGD", "TRADES", PAPERS_TRADES, "UDP-PGD", UDPR)
Results = Mapping[PointSet, Mapping[str, Sequence[Margins]]]
Methods = Mapping[PointSet, Mapping[str, Method]]
Cells = Mapping[tuple[PointSet, str], Sequence[Run]]


def cells(methods: Methods, plans: Plans, seeds: Sequence[int]) -> Cells:
    return {
        (data, name): plane.runs_of(data, method, plans[data], seeds)
        for data, by_name in methods.items()
        for name, method in by_name.items()
    }


@dataclass(frozen=True)
class Fig3:
    TITLE: str = "Fig. 3: corridor and slabs, every method"
    CORE_MINUTES: float = 32.0
    seeds: Sequence[int] = range(100, 110)
    plans: Plans = field(default_factory=lambda: PLANS)
    slowly: tuple[Updates, Adam] = SLOWLY
    """Of what is trained longer."""
    grids: plane.Grids = plane.GRIDS

    def all_cells(self) -> Cells:
        return {**cells(METHODS, self.plans, self.seeds), **self.longer()}

    def longer(self) -> Cells:
        length, descent = self.slowly
        return {
            (data, name): plane.runs_of(
                data, METHODS[data][same], replace(plan, length=length, descent=descent), self.seeds
            )
            for data, plan in self.plans.items()
            for name, same in LONGER.items()
        }

    def run(self, store: Store, workers: Workers) -> None:
        workers.do(jobs(self.all_cells(), store, self.grids, tuple(NORMS.values())), "Fig. 3")

    def missing(self, store: Store) -> int:
        return plane.missing(
            [run for group in self.all_cells().values() for run in group], store, tuple(NORMS.values())
        )

    def report(self, store: Store) -> Report:
        runs = self.all_cells()
        measured = {norm: results(runs, store, p) for norm, p in NORMS.items()}
        length, descent = self.slowly
        return Report(
            self.TITLE,
            "Does training with perturbations recover the max-margin boundary where the usual training does not?",
            f"Seeds {self.seeds[0]}..{self.seeds[-1]}; MLP {plane.NETWORK.widths}, ReLU; corridor: "
            f"{self.plans[CORRIDOR]}, LDP and TRADES with radius {VIOLATING}; slabs: {self.plans[SLABS]}, LDP and "
            f"TRADES at the admissible radius, {ADMISSIBLE} in l-infinity and {admissible(2.0)} in l2. Balls are of "
            "l-infinity where nothing is said. TRADES with KL and weight 6; the paper's: cross-entropy, weight 1. "
            "UDP-PGD with radius .5, step .05, 10 steps; UDPR with radius and number of steps (50) after the name of "
            f"the figure's file, weight 1. Longer: {length.count:,} updates, {descent}. The paper publishes neither "
            "points nor settings: the geometry is ours.",
            verdicts(measured["l2"]),
            tuple(margin_table(data, measured[norm][data], self.seeds, norm) for data in self.plans for norm in NORMS),
            (regions({cell: group for cell, group in runs.items() if cell[1] in SHOWN}, store, "fig3"),),
        )


STUDY = Fig3()


def jobs(runs: Cells, store: Store, grids: plane.Grids, norms: Sequence[float] = (2.0,)) -> list[Job]:
    names = {group[0].method: name for (_, name), group in runs.items()}
    return plane.jobs([run for group in runs.values() for run in group], names, store, grids, norms)


def results(runs: Cells, store: Store, p: float = 2.0) -> Results:
    figures: dict[PointSet, dict[str, list[Margins]]] = {}
    for (data, name), group in runs.items():
        figures.setdefault(data, {})[name] = [plane.measured(run, store, p) for run in group]
    return figures


def margin_table(
    data: PointSet, results: Mapping[str, Sequence[Margins]], seeds: Sequence[int], norm: str = "l2"
) -> Table:
    rows = [
        (
            name,
            mean_std([100 * m.accuracy for m in group], 1),
            mean_std([m.worst_fraction for m in group]),
            mean_std([m.median_fraction for m in group]),
            mean_std([m.mean_fraction for m in group]),
        )
        for name, group in results.items()
    ]
    best = float(data.draw().best_margins(NORMS[norm]).min())
    return Table(
        f"{TITLES[data]}: margins in {norm} as a share of the best possible",
        ("method", "train accuracy %", "worst", "median", "mean"),
        tuple(rows),
        f"Mean ± std over {len(seeds)} seeds. Worst: smallest distance to the boundary / {best:.3f}, the most that any "
        "boundary can give every point; negative: a point on the wrong side.",
    )


def regions(runs: Cells, store: Store, name: str) -> Picture:
    """One column for each method, one row for each set; the first seed."""
    sets = list(dict.fromkeys(data for data, _ in runs))
    methods = list(dict.fromkeys(method for _, method in runs))
    figure, axes = panels(len(sets), len(methods))
    for row, data in enumerate(sets):
        for column, method in enumerate(methods):
            draw_regions(axes[row][column], plane.picture(runs[data, method][0], store))
    label_grid(axes, methods, [TITLES[data] for data in sets])
    seed = next(iter(runs.values()))[0].seed
    return Picture(
        name,
        figure,
        f"Decision regions after training (seed {seed}). Solid: the network's boundary; dashed: the max-margin "
        "boundary; red rings: misclassified training points.",
    )


def verdicts(results: Results) -> tuple[Verdict, ...]:
    corridor, slabs = results[CORRIDOR], results[SLABS]
    return (
        Verdict(
            f"On the corridor, standard training draws its boundary too close to the points (worst margin below "
            f"{CLOSE}).",
            _below(_worst(corridor["standard"])),
            f"worst margin {_worst(corridor['standard'])} of the best possible",
        ),
        Verdict(
            "LDP-PGD misclassifies training points, and only where its radius is not admissible, with most seeds.",
            in_most_seeds([m.errors > 0 and _only_where_inadmissible(m) for m in corridor["LDP-PGD"]]),
            _errors(corridor["LDP-PGD"]),
        ),
        *(
            Verdict(
                f"So does {name} misclassify some.",
                in_most_seeds([m.errors > 0 for m in corridor[name]]),
                _errors(corridor[name]),
            )
            for name in ("TRADES", PAPERS_TRADES)
        ),
        *(
            Verdict(
                f"{name} makes no such errors at twice the radius.",
                in_most_seeds([m.errors == 0 for m in corridor[name]]),
                _errors(corridor[name]),
            )
            for name in ("UDP-PGD", UDPR)
        ),
        *(_close("corridor", name, corridor) for name in ("UDP-PGD", UDPR, UDP_L2, UDPR_L2, "UDP-PGD, longer")),
        Verdict(
            "On LMS-5, LDP-PGD and TRADES at the largest admissible radius do not recover it.",
            all_of(_below(_worst(slabs[name])) for name in ("LDP-PGD", "TRADES", PAPERS_TRADES)),
            "worst " + ", ".join(f"{name} {_worst(slabs[name])}" for name in ("LDP-PGD", "TRADES", PAPERS_TRADES)),
        ),
        *(_close("LMS-5", name, slabs) for name in ("UDP-PGD", UDPR, UDP_L2, UDPR_L2, "UDP-PGD, longer")),
    )


def _close(where: str, name: str, results: Mapping[str, Sequence[Margins]]) -> Verdict:
    return Verdict(
        f"{name}'s boundary on {where} is close to the max-margin one (worst margin at least {CLOSE}).",
        greater(_worst(results[name]), CLOSE),
        f"worst {_worst(results[name])}, standard {_worst(results['standard'])}",
    )


def _worst(results: Sequence[Margins]) -> Estimate:
    return mean_of([m.worst_fraction for m in results])


def _below(value: Estimate) -> Outcome:
    return greater(Estimate(CLOSE, CLOSE, CLOSE), value)


def _only_where_inadmissible(results: Margins) -> bool:
    narrow = CORRIDOR.draw().best_margins(math.inf).numpy() < VIOLATING
    return bool(narrow[results.margin < 0].all())


def _errors(seeds: Sequence[Margins]) -> str:
    return f"errors in {len(seeds)} seeds, of {len(seeds[0].margin)} points: {' '.join(str(m.errors) for m in seeds)}"
