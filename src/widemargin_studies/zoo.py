"""Margins of all networks in the zoo in one figure.

`python -m widemargin_studies.zoo RUNS` puts networks there, from the folder of a study's results."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np

from widemargin.data.dataset import Splits
from widemargin.data.splits import at_most
from widemargin.io.load import load_model
from widemargin.io.zoo import PREFIX, Card, Measured, cards, put
from widemargin.measure.accuracy import accuracy
from widemargin.measure.distance import distances
from widemargin.perturb.balls import L2, Linf, Norm
from widemargin.report.document import Picture, Report
from widemargin.report.figures import COLOURS, panels
from widemargin.report.store import Parts, Store, Stored
from widemargin.report.tables import Table
from widemargin.runs.folder import RunFolder
from widemargin.workers import Job, OnProgress, Workers
from widemargin_studies import app_overfitting_fashion, tab2
from widemargin_studies.beside import short
from widemargin_studies.pixels import Cell, ImageStudy

NORMS: dict[str, Norm] = {"linf": Linf, "l2": L2}
SHOWN = {"linf": 0.3, "l2": 3.0}
"""How far the axes go."""
NAMES = {
    ("standard", 0.0): "fashion-lenet-standard",
    ("PGD", 0.2): "fashion-lenet-pgd",
    ("TRADES", 0.2): "fashion-lenet-trades",
    ("UDPR", 0.5): "fashion-lenet-udpr",
    ("UDP-PGD", 0.5): "fashion-lenet-udp",
    ("UDP-PGD", 0.3): "fashion-lenet-udp-eps-0.3",
    ("FGSM", 0.2): "fashion-lenet-fgsm",
    ("UDP 1 step", 0.2): "fashion-lenet-udp-single-step",
}
SOURCES: dict[str, tuple[ImageStudy, str]] = {
    "tab2-one-seed": (tab2.ONE, "Tab. 2"),
    "app-overfitting-fashion": (app_overfitting_fashion.FULL, "App. E.2"),
}
"""Studies whose networks of seed 0 are put into the zoo."""


@dataclass(frozen=True)
class ZooMargins:
    TITLE: str = "Margins of the networks in the zoo"
    CORE_MINUTES: float = 24.0
    points: int = 300
    """Of the test set, drawn with seed 0."""

    def parts(self, card: Card, norm: str) -> Parts:
        return ("margins of the zoo", card, load_model(f"{PREFIX}{card.name}").digest, norm, self.points)

    def run(self, store: Store, workers: Workers) -> None:
        jobs = [
            Job(f"{card.name}, {norm}", self.points, self._measure, (card, norm, store))
            for card in cards()
            for norm in NORMS
            if self.parts(card, norm) not in store
        ]
        workers.do(jobs, self.TITLE)

    def missing(self, store: Store) -> int:
        return sum(self.parts(card, norm) not in store for card in cards() for norm in NORMS)

    def _measure(self, card: Card, norm: str, store: Store, on_progress: OnProgress) -> None:
        model = load_model(f"{PREFIX}{card.name}")
        assert model.run is not None
        parts = model.run.data.draw()
        assert isinstance(parts, Splits)
        some = at_most(parts.test, self.points, 0)
        nearest = distances(model.network, some, NORMS[norm], rows=100, on_progress=on_progress)
        numbers = {"n": len(some), "clean": accuracy(model.network, some)}
        store.save(self.parts(card, norm), numbers, {"margin": nearest.distance.cpu().double().numpy()}, {})

    def report(self, store: Store) -> Report:
        nearest = cards()
        figure, axes = panels(2, len(NORMS), size=4.0)
        rows = []
        # More networks than colours are told apart by their lines.
        for card, (line, colour) in zip(nearest, cycle(product(("-", "--", ":"), COLOURS)), strict=False):
            stored = {norm: store.load(self.parts(card, norm)) for norm in NORMS}
            for (norm, of_norm), (above, below) in zip(stored.items(), zip(*axes, strict=True), strict=True):
                margins = np.sort(of_norm.arrays["margin"])
                label = f"{card.name.removeprefix('fashion-lenet-')} ({card.epochs} epochs)"
                radii = np.linspace(0, SHOWN[norm], 200)
                above.plot(
                    radii, [100 * np.mean(margins > radius) for radius in radii], color=colour, ls=line, label=label
                )
                bins = np.linspace(0, SHOWN[norm], 31)
                below.hist(
                    np.clip(margins, 0, SHOWN[norm]), bins=bins, histtype="step", color=colour, ls=line, label=label
                )
            rows.append((card.name, str(card.epochs), *_quantiles(stored)))
        for norm, (above, below) in zip(NORMS, zip(*axes, strict=True), strict=True):
            above.set_ylabel("test points with a wider margin, %")
            below.set_ylabel("test points")
            for panel in (above, below):
                panel.set_xlabel(f"margin, {norm}")
        axes[0][0].legend(fontsize=7)
        table = Table(
            "Margins",
            ("network", "epochs", *(f"{norm} {what}" for norm in NORMS for what in ("25 %", "median", "75 %"))),
            tuple(rows),
            f"Quantiles over {self.points} test points drawn with seed 0; a misclassified point has margin 0.",
        )
        return Report(
            self.TITLE,
            "How far is the boundary from test points, after each way of training?",
            "Fashion-MNIST, LeNet. A margin is the least of what DDN, FMN, FAB and bisected APGD find, an upper bound.",
            (),
            (table,),
            (
                Picture(
                    "margins",
                    figure,
                    "Above: the share of test points whose margin is wider than the radius, which is robust accuracy; "
                    "below: how margins are distributed, the last bin with all wider ones.",
                ),
            ),
        )


STUDY = ZooMargins()


def _quantiles(stored: dict[str, Stored]) -> list[str]:
    quantiles = (0.25, 0.5, 0.75)
    return [f"{np.quantile(of_norm.arrays['margin'], q):.3f}" for of_norm in stored.values() for q in quantiles]


def entries(store: Store) -> Iterator[tuple[RunFolder, Path, Card]]:
    """Of every network that is judged: its run, its weights and its card; those of one study after as many epochs."""
    for name, (study, source) in SOURCES.items():
        for cell in study.cells:
            run = study.runs(cell)[0]
            epoch = study.judged_at(run, store)
            if epoch is None:
                continue
            folder = RunFolder.of(run, store.root / "trained")
            kept = folder.path / f"epoch-{epoch}.safetensors"
            numbers = study.stored_at(run, epoch, store).numbers
            card = Card(
                name=NAMES[cell.name, cell.eps],
                data="fashion-mnist",
                network="lenet",
                method=_method(cell),
                epochs=epoch,
                seed=run.seed,
                figures=tuple(_figures(study, numbers)),
                source=source,
                command=f"widemargin study run {name}",
            )
            yield folder, kept if kept.exists() else folder.last, card


def _method(cell: Cell) -> str:
    steps = "1 step" if cell.steps == 1 else f"{cell.steps} steps"
    return f"{cell.name}, eps {cell.eps:g}, alpha {cell.alpha:g}, {steps}" if cell.eps else cell.name


def _figures(study: ImageStudy, numbers: Mapping[str, Any]) -> Iterator[Measured]:
    yield Measured("clean", float(numbers["clean"]), int(numbers["n"]))
    attacked = int(numbers.get("attacked", numbers["n"]))
    if "many" in numbers:
        yield Measured("PGD-20, linf 0.2", float(numbers["many"]), attacked)
    for ball in study.cells[0].bench.balls:
        if repr(ball) in numbers:
            yield Measured(f"AutoAttack, {short(ball)}", float(numbers[repr(ball)]), attacked)


if __name__ == "__main__":
    for run_folder, weights, described in entries(Store(Path(sys.argv[1]))):
        print(put(run_folder, weights, described))
