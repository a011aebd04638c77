"""Figure 3: standard, LDP-PGD, TRADES and UDP-PGD on the Narrow Corridor and on LMS-5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from widemargin.data.toy import LMS5, NarrowCorridor, PointSet
from widemargin.measure.margin import Margins
from widemargin.method import Method
from widemargin.perturb.balls import OPEN, Linf
from widemargin.plan import Plan
from widemargin.recipes import pgd, standard, trades, udp
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import draw_regions, label_grid, panels
from widemargin.report.store import Store
from widemargin.report.tables import Table, mean_std
from widemargin.run import Run
from widemargin.workers import Job, Workers
from widemargin_studies import plane

TITLE = "Fig. 3: corridor and slabs, four methods"
CORE_MINUTES = 7.0
SEEDS = range(100, 110)
CLOSE = 0.9
"""A boundary is called close to the max-margin one if its smallest margin is at least this share of the best."""

CORRIDOR, SLABS = NarrowCorridor(), LMS5(seed=1)
PLANS: Mapping[PointSet, Plan] = {CORRIDOR: plane.FULL_BATCH, SLABS: plane.BATCHES_OF_100}
TITLES: Mapping[PointSet, str] = {CORRIDOR: "Narrow Corridor", SLABS: "LMS-5"}

# On the slabs, the largest l-infinity radius under which no two classes meet (paper: "under assumption AT-Asm").
ADMISSIBLE = int(1000 * float(SLABS.draw().best_margins(float("inf")).min())) / 1000

# On the corridor, a radius that is too large for its narrow part only.
VIOLATING = 0.25

METHODS: Mapping[PointSet, Mapping[str, Method]] = {
    CORRIDOR: {
        "standard": standard(),
        "LDP-PGD": pgd(Linf(VIOLATING, OPEN), alpha=0.05, steps=10),
        "TRADES": trades(Linf(VIOLATING, OPEN), alpha=0.05, steps=10, weight=6.0),
        "UDP-PGD": udp(Linf(0.5, OPEN), alpha=0.05, steps=10),
    },
    SLABS: {
        "standard": standard(),
        "LDP-PGD": pgd(Linf(ADMISSIBLE, OPEN), alpha=ADMISSIBLE / 5, steps=10),
        "TRADES": trades(Linf(ADMISSIBLE, OPEN), alpha=ADMISSIBLE / 5, steps=10, weight=6.0),
        "UDP-PGD": udp(Linf(0.5, OPEN), alpha=0.05, steps=10),
    },
}
Results = Mapping[PointSet, Mapping[str, Sequence[Margins]]]
Methods = Mapping[PointSet, Mapping[str, Method]]
Cells = Mapping[tuple[PointSet, str], Sequence[Run]]


def cells(methods: Methods = METHODS, seeds: Sequence[int] = SEEDS) -> Cells:
    return {
        (data, name): plane.runs_of(data, method, PLANS[data], seeds)
        for data, by_name in methods.items()
        for name, method in by_name.items()
    }


def jobs(runs: Cells, store: Store) -> list[Job]:
    names = {own[0].method: name for (_, name), own in runs.items()}
    return plane.jobs([run for own in runs.values() for run in own], names, store)


def run(store: Store, workers: Workers) -> None:
    workers.do(jobs(cells(), store), "Fig. 3")


def missing(store: Store) -> int:
    return plane.missing([run for own in cells().values() for run in own], store)


def results(runs: Cells, store: Store) -> Results:
    found: dict[PointSet, dict[str, list[Margins]]] = {}
    for (data, name), own in runs.items():
        found.setdefault(data, {})[name] = [plane.measured(run, store) for run in own]
    return found


def margin_table(data: PointSet, found: Mapping[str, Sequence[Margins]], seeds: Sequence[int]) -> Table:
    rows = [
        (
            name,
            mean_std([100 * m.accuracy for m in own], 1),
            mean_std([m.worst for m in own]),
            mean_std([m.median for m in own]),
            mean_std([m.mean for m in own]),
        )
        for name, own in found.items()
    ]
    best = float(data.draw().best_margins().min())
    return Table(
        f"{TITLES[data]}: margins as a share of the best possible",
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


def report(store: Store) -> Report:
    runs = cells()
    found = results(runs, store)
    return Report(
        TITLE,
        "Does training with perturbations recover the max-margin boundary where the usual training does not?",
        f"Seeds {SEEDS[0]}..{SEEDS[-1]}; MLP {plane.NETWORK.widths}, ReLU; corridor: {PLANS[CORRIDOR]}; slabs: "
        f"{PLANS[SLABS]}, LDP at the admissible l-infinity radius {ADMISSIBLE}. The paper publishes neither points nor "
        "settings: the geometry is ours.",
        verdicts(found),
        tuple(margin_table(data, by_name, SEEDS) for data, by_name in found.items()),
        (regions(runs, store, "fig3"),),
    )


def verdicts(found: Results) -> tuple[Verdict, ...]:
    corridor, slabs = found[CORRIDOR], found[SLABS]
    return (
        Verdict(
            "On the corridor, standard training draws its boundary too close to the points.",
            _worst(corridor["standard"]) < CLOSE,
            f"worst margin {_worst(corridor['standard']):.2f} of the best possible",
        ),
        Verdict(
            "LDP-PGD misclassifies training points, and only where its radius is not admissible.",
            min(m.errors for m in corridor["LDP-PGD"]) > 0 and _only_where_inadmissible(corridor["LDP-PGD"]),
            _errors(corridor["LDP-PGD"]),
        ),
        Verdict(
            "So does TRADES.",
            min(m.errors for m in corridor["TRADES"]) > 0,
            _errors(corridor["TRADES"]),
        ),
        Verdict(
            "UDP-PGD makes no such errors at twice the radius.",
            max(m.errors for m in corridor["UDP-PGD"]) == 0,
            _errors(corridor["UDP-PGD"]),
        ),
        Verdict(
            f"UDP-PGD's boundary on the corridor is close to the max-margin one (worst margin at least {CLOSE}).",
            _worst(corridor["UDP-PGD"]) >= CLOSE,
            f"worst {_worst(corridor['UDP-PGD']):.2f}, standard {_worst(corridor['standard']):.2f}",
        ),
        Verdict(
            "On LMS-5, LDP-PGD and TRADES at the largest admissible radius do not recover it.",
            max(_worst(slabs["LDP-PGD"]), _worst(slabs["TRADES"])) < CLOSE,
            f"worst {_worst(slabs['LDP-PGD']):.2f} and {_worst(slabs['TRADES']):.2f}",
        ),
        Verdict(
            "On LMS-5, UDP-PGD with a large radius does.",
            _worst(slabs["UDP-PGD"]) >= CLOSE,
            f"worst {_worst(slabs['UDP-PGD']):.2f}, standard {_worst(slabs['standard']):.2f}",
        ),
    )


def _worst(found: Sequence[Margins]) -> float:
    return float(np.mean([m.worst for m in found]))


def _only_where_inadmissible(found: Sequence[Margins]) -> bool:
    narrow = CORRIDOR.draw().best_margins(float("inf")).numpy() < VIOLATING
    return all(narrow[m.margin < 0].all() for m in found)


def _errors(found: Sequence[Margins]) -> str:
    return f"errors in {len(found)} seeds, of {len(found[0].margin)} points: {' '.join(str(m.errors) for m in found)}"
