"""App. D.6: a deep kernel trained on clean points, on PGD-50 points and on UDP-50 points: who classifies the set?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from widemargin.measure.margin import Margins, margins
from widemargin.method import Method
from widemargin.recipes import pgd, standard, udp
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import Picture as Panel
from widemargin.report.figures import draw_regions, label_grid, panels
from widemargin.report.store import Arrays, Parts, Store
from widemargin.report.tables import Table, mean_std
from widemargin.report.verdicts import in_most_seeds
from widemargin.workers import Job, OnProgress, Workers
from widemargin_studies import due, plane

TITLE = "App. D.6: training a deep kernel (DUE) with PGD-50 and with UDP-50"
CORE_MINUTES = 2.0
METHODS: Mapping[str, Method] = {
    "clean": standard(),
    f"PGD-{due.STEPS}": pgd(due.BALL, due.ALPHA, due.STEPS),
    f"UDP-{due.STEPS}": udp(due.BALL, due.ALPHA, due.STEPS),
}
CLEAN, PGD, UDP = METHODS


def parts(name: str, seed: int) -> Parts:
    return (due.run_of(METHODS[name], seed),)


def run(store: Store, workers: Workers) -> None:
    updates = due.PLAN.updates(len(due.DATA.draw()))
    todo = [(name, seed) for name in METHODS for seed in due.SEEDS if parts(name, seed) not in store]
    workers.do([Job(f"{name}, seed {seed}", updates, fit, (name, seed, store)) for name, seed in todo], TITLE)


def missing(store: Store) -> int:
    return sum(parts(name, seed) not in store for name in METHODS for seed in due.SEEDS)


def fit(name: str, seed: int, store: Store, on_progress: OnProgress) -> None:
    run = due.run_of(METHODS[name], seed)
    network, cloud = due.trained(run, on_progress), due.DATA.draw()
    results = margins(network, cloud, resolution=201)
    arrays = {"margin": results.margin, "best": results.best, **plane.picture_arrays(network, cloud)}
    store.save(parts(name, seed), {"errors": results.errors}, arrays, {})


def report(store: Store) -> Report:
    results = {name: [store.load(parts(name, seed)).arrays for seed in due.SEEDS] for name in METHODS}
    return Report(
        TITLE,
        "With a radius that is larger than many margins, whose points still let a Gaussian process learn the set?",
        due.settings(),
        verdicts(results),
        (_table(results),),
        (_picture(results),),
    )


def verdicts(results: Mapping[str, Sequence[Arrays]]) -> tuple[Verdict, ...]:
    errors = {name: [_measured(arrays).errors for arrays in group] for name, group in results.items()}
    alike = {name: agreements(results[name], results[CLEAN]) for name in (PGD, UDP)}
    return (
        Verdict(
            f"Trained on {PGD} points it does not classify the training set.",
            in_most_seeds([count > 0 for count in errors[PGD]]),
            f"errors by seed: {_listed(errors[PGD])}",
        ),
        Verdict(
            f"Trained on {UDP} points it does.",
            in_most_seeds([count == 0 for count in errors[UDP]]),
            f"errors by seed: {_listed(errors[UDP])}; trained on clean points: {_listed(errors[CLEAN])}",
        ),
        Verdict(
            "UDP's boundary is more like that of clean training than PGD's is, with most seeds.",
            in_most_seeds([udp > pgd for pgd, udp in zip(alike[PGD], alike[UDP], strict=True)]),
            "share of the window where they agree with clean training: "
            + "; ".join(f"{name} {' '.join(f'{share:.2f}' for share in group)}" for name, group in alike.items()),
        ),
    )


def agreements(results: Sequence[Arrays], clean: Sequence[Arrays]) -> list[float]:
    """For every seed, the share of the window that both networks give to the same class."""
    return [
        float(((group["lead"] > 0) == (other["lead"] > 0)).mean()) for group, other in zip(results, clean, strict=True)
    ]


def _measured(arrays: Arrays) -> Margins:
    return Margins(arrays["margin"], arrays["best"])


def _listed(errors: Sequence[int]) -> str:
    return " ".join(map(str, errors))


def _table(results: Mapping[str, Sequence[Arrays]]) -> Table:
    rows = []
    for name, group in results.items():
        measured = [_measured(arrays) for arrays in group]
        rows.append(
            (
                name,
                _listed([margin.errors for margin in measured]),
                mean_std([margin.accuracy * 100 for margin in measured], 1),
                mean_std([float(np.mean(margin.fraction > 0.5)) for margin in measured]),
                mean_std(agreements(group, results[CLEAN])),
            )
        )
    return Table(
        "After training",
        ("trained on", "errors", "accuracy %", "half their margin", "like clean"),
        tuple(rows),
        f"Errors of {len(due.DATA.draw())} training points by seed. Half their margin: share of points that keep more "
        "than half of what the max-margin boundary would give them. Like clean: share of the window classified as "
        "clean training with the same seed does.",
    )


def _picture(results: Mapping[str, Sequence[Arrays]]) -> Picture:
    figure, axes = panels(len(due.SEEDS), len(METHODS), size=2.9)
    for column, group in enumerate(results.values()):
        for row, arrays in zip(axes, group, strict=True):
            shown = {name: arrays[name] for name in ("points", "labels", "x", "y", "lead")}
            draw_regions(row[column], Panel(wrong=arrays["margin"] < 0, **shown))
    columns = ["trained on clean points", *(f"on {name} points" for name in (PGD, UDP))]
    label_grid(axes, columns, [f"seed {seed}" for seed in due.SEEDS])
    return Picture(
        "due-training",
        figure,
        "Decision regions of deep kernels after training; dashed: the max-margin boundary; red rings: training points "
        "that are misclassified.",
    )
