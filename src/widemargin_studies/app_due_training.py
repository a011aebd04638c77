"""App. D.6: a deep kernel trained on clean points, on PGD-50 points and on UDP-50 points: who classifies the set?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from widemargin.measure.margin import Margins
from widemargin.method import Method
from widemargin.recipes import pgd, standard, udp
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import Picture as Panel
from widemargin.report.figures import draw_regions, label_grid, panels
from widemargin.report.store import Arrays, Parts, Store
from widemargin.report.tables import Table, mean_std
from widemargin.report.verdicts import in_most_seeds
from widemargin.workers import Job, OnProgress, Workers
from widemargin_studies import due
from widemargin_studies.due import DUE, Due


@dataclass(frozen=True)
class DueTraining:
    TITLE: str = "App. D.6: training a deep kernel (DUE) with PGD-50 and with UDP-50"
    CORE_MINUTES: float = 2.0
    kernel: Due = DUE

    @property
    def methods(self) -> Mapping[str, Method]:
        """Clean training first, then PGD, then UDP."""
        steps = self.kernel.steps
        return {
            "clean": standard(),
            f"PGD-{steps}": pgd(due.BALL, due.ALPHA, steps),
            f"UDP-{steps}": udp(due.BALL, due.ALPHA, steps),
        }

    def parts(self, name: str, seed: int) -> Parts:
        return (self.kernel.run_of(self.methods[name], seed),)

    def run(self, store: Store, workers: Workers) -> None:
        todo = [
            (name, seed) for name in self.methods for seed in self.kernel.seeds if self.parts(name, seed) not in store
        ]
        workers.do(
            [Job(f"{name}, seed {seed}", self.kernel.updates, self.fit, (name, seed, store)) for name, seed in todo],
            self.TITLE,
        )

    def missing(self, store: Store) -> int:
        return sum(self.parts(name, seed) not in store for name in self.methods for seed in self.kernel.seeds)

    def fit(self, name: str, seed: int, store: Store, on_progress: OnProgress) -> None:
        run = self.kernel.run_of(self.methods[name], seed)
        network, cloud = due.trained(run, on_progress), self.kernel.data.draw()
        results = self.kernel.grids.margins(network, cloud)
        arrays = {"margin": results.margin, "best": results.best, **self.kernel.grids.picture_arrays(network, cloud)}
        store.save(self.parts(name, seed), {"errors": results.errors}, arrays, {})

    def report(self, store: Store) -> Report:
        results = {
            name: [store.load(self.parts(name, seed)).arrays for seed in self.kernel.seeds] for name in self.methods
        }
        return Report(
            self.TITLE,
            "With a radius that is larger than many margins, whose points still let a Gaussian process learn the set?",
            self.kernel.settings(),
            verdicts(results),
            (self._table(results),),
            (self._picture(results),),
        )

    def _table(self, results: Mapping[str, Sequence[Arrays]]) -> Table:
        clean, rows = next(iter(results.values())), []
        for name, group in results.items():
            measured = [_measured(arrays) for arrays in group]
            rows.append(
                (
                    name,
                    _listed([margin.errors for margin in measured]),
                    mean_std([margin.accuracy * 100 for margin in measured], 1),
                    mean_std([float(np.mean(margin.fraction > 0.5)) for margin in measured]),
                    mean_std(agreements(group, clean)),
                )
            )
        return Table(
            "After training",
            ("trained on", "errors", "accuracy %", "half their margin", "like clean"),
            tuple(rows),
            f"Errors of {len(self.kernel.data.draw())} training points by seed. Half their margin: share of points "
            "that keep more than half of what the max-margin boundary would give them. Like clean: share of the window "
            "classified as clean training with the same seed does.",
        )

    def _picture(self, results: Mapping[str, Sequence[Arrays]]) -> Picture:
        figure, axes = panels(len(self.kernel.seeds), len(self.methods), size=2.9)
        for column, group in enumerate(results.values()):
            for row, arrays in zip(axes, group, strict=True):
                shown = {name: arrays[name] for name in ("points", "labels", "x", "y", "lead")}
                draw_regions(row[column], Panel(wrong=arrays["margin"] < 0, **shown))
        columns = ["trained on clean points", *(f"on {name} points" for name in list(results)[1:])]
        label_grid(axes, columns, [f"seed {seed}" for seed in self.kernel.seeds])
        return Picture(
            "due-training",
            figure,
            "Decision regions of deep kernels after training; dashed: the max-margin boundary; red rings: training "
            "points that are misclassified.",
        )


STUDY = DueTraining()


def verdicts(results: Mapping[str, Sequence[Arrays]]) -> tuple[Verdict, ...]:
    """Of clean training, PGD and UDP, in this order."""
    clean, pgd, udp = results
    errors = {name: [_measured(arrays).errors for arrays in group] for name, group in results.items()}
    alike = {name: agreements(results[name], results[clean]) for name in (pgd, udp)}
    return (
        Verdict(
            f"Trained on {pgd} points it does not classify the training set.",
            in_most_seeds([count > 0 for count in errors[pgd]]),
            f"errors by seed: {_listed(errors[pgd])}",
        ),
        Verdict(
            f"Trained on {udp} points it does.",
            in_most_seeds([count == 0 for count in errors[udp]]),
            f"errors by seed: {_listed(errors[udp])}; trained on clean points: {_listed(errors[clean])}",
        ),
        Verdict(
            "UDP's boundary is more like that of clean training than PGD's is, with most seeds.",
            in_most_seeds([of_udp > of_pgd for of_pgd, of_udp in zip(alike[pgd], alike[udp], strict=True)]),
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
