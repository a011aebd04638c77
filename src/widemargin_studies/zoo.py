"""Margins of all networks in the zoo in one figure.

`python -m widemargin_studies.zoo RUNS` puts networks there, from the folder of a study's results."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemargin.data.dataset import Splits
from widemargin.data.splits import at_most
from widemargin.io.load import load_model
from widemargin.io.zoo import PREFIX, Card, Measured, cards, put
from widemargin.measure.accuracy import accuracy
from widemargin.measure.distance import distances
from widemargin.perturb.balls import L2, Linf, Norm
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import COLOURS, panels
from widemargin.report.store import Parts, Store
from widemargin.report.tables import Table
from widemargin.report.verdicts import all_of, greater, mean_of
from widemargin.runs.folder import RunFolder
from widemargin.workers import Job, OnProgress, Workers
from widemargin_studies import app_overfitting_fashion, tab2
from widemargin_studies.beside import short
from widemargin_studies.pixels import Cell, ImageStudy

NORMS: dict[str, Norm] = {"linf": Linf, "l2": L2}
SHOWN = {"linf": 0.37, "l2": 3.2}
"""How far the axes go."""
QUARTILES = (0.25, 0.5, 0.75)
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
    CORE_MINUTES: float = 4.0
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
        listed = cards()
        names = [card.name.removeprefix("fashion-lenet-") for card in listed]
        stored = {norm: [store.load(self.parts(card, norm)).arrays["margin"] for card in listed] for norm in NORMS}
        figure, axes = panels(2, len(NORMS), size=4.0)
        for (norm, margins), above, below in zip(stored.items(), *axes, strict=True):
            radii = np.linspace(0, SHOWN[norm], 200)
            # More networks than colours are told apart by their lines.
            for name, of_one, (line, colour) in zip(names, margins, cycle(product(("-", "--", ":"), COLOURS))):
                wider = [100 * np.mean(of_one > radius) for radius in radii]
                above.plot(radii, wider, color=colour, ls=line, label=name)
            above.set_ylabel("test points with a wider margin, %")
            below.boxplot(margins, orientation="horizontal", whis=(5, 95), showfliers=False, widths=0.6)
            below.set_yticklabels(names)
            below.invert_yaxis()
            for panel in (above, below):
                panel.set_xlabel(f"margin, {norm}")
                panel.set_xlim(0, SHOWN[norm])
        axes[0][-1].legend(fontsize=7)
        for panel in axes[1][1:]:
            panel.set_yticklabels([])
        rows = [
            (
                card.name,
                str(card.epochs),
                *(f"{np.quantile(stored[norm][i], q):.3f}" for norm in NORMS for q in QUARTILES),
            )
            for i, card in enumerate(listed)
        ]
        table = Table(
            "Margins",
            ("network", "epochs", *(f"{norm} {what}" for norm in NORMS for what in ("25 %", "median", "75 %"))),
            tuple(rows),
            f"Quantiles over {self.points} test points drawn with seed 0; a misclassified point has margin 0.",
        )
        return Report(
            self.TITLE,
            "How far is the boundary from test points, after each way of training?",
            "Fashion-MNIST, LeNet, seed 0. A margin is the least of what DDN, FMN, FAB and bisected APGD find, an "
            "upper bound. Intervals are of the test points, not of seeds.",
            tuple(_wider(names, margins, norm) for norm, margins in stored.items()),
            (table,),
            (
                Picture(
                    "margins",
                    figure,
                    "Above: the share of test points whose margin is wider than the radius, which is robust accuracy; "
                    "below: the quartiles of the margins, and between which nine tenths of them lie.",
                ),
            ),
        )


STUDY = ZooMargins()


def _wider(names: Sequence[str], margins: Sequence[NDArray[Any]], norm: str) -> Verdict:
    """The paper's central claim, point by point."""
    by_name = dict(zip(names, margins, strict=True))
    gains = {
        f"{ours} - {other}": mean_of([float(gain) for gain in by_name[ours] - by_name[other]])
        for ours in ("udp", "udpr")
        for other in ("standard", "pgd", "trades")
        if ours in by_name and other in by_name
    }
    return Verdict(
        f"The mean margin in {norm} is wider with UDP and with UDPR than with standard training, PGD and TRADES.",
        all_of(greater(gain, 0.0) for gain in gains.values()),
        "; ".join(f"{name}: {gain}" for name, gain in gains.items()),
    )


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
