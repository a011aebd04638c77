"""Studies of images at a scale of seconds, and stores that are filled by hand."""

from widemargin.data.images import ImageSet
from widemargin.networks.named import LeNetSpec
from widemargin.perturb.balls import Linf
from widemargin.report.store import Store
from widemargin.runs.folder import RunFolder
from widemargin.training.plan import Adam, Epochs, Plan
from widemargin_studies import app_overfitting_cifar, clean_accuracy
from widemargin_studies.pixels import Bench, Cell, ImageStudy

DIGITS = Bench(ImageSet("digits"), LeNetSpec(side=8), Plan(Epochs(20), Adam(1e-3), batch=256), (Linf(0.05),))


CELLS = (Cell(DIGITS, "PGD", 0.1, 0.02, 6), Cell(DIGITS, "UDP-PGD", 0.2, 0.04, 6))


def filled(store: Store, own: ImageStudy, stages: int | None = None) -> None:
    """As if it had run: numbers that rise from cell to cell, and the folders of its networks."""
    for number, cell in enumerate(own.cells):
        for trial in own.runs(cell):
            radii = [f"{radius:g}" for radius in app_overfitting_cifar.RADII]
            validated = [clean_accuracy.validation(ball) for ball in cell.bench.balls]
            names = ["clean", "transfer", "one step", "many", *map(repr, cell.bench.balls), *radii, *validated]
            value = 0.3 + 0.01 * number + 0.001 * trial.seed
            looks = [{"update": 5, "clean": value, "robust": value / 2, "one step": value}]
            numbers = {"n": 100, "attacked": 50, "validated": 80, "looks": looks, **dict.fromkeys(names, value)}
            length = own.scale.cell(cell).bench.plan.length
            for epoch in own.scale.stages[:stages]:
                parts = (own.judge, trial, *([] if Epochs(epoch) == length else [Epochs(epoch)]))
                store.save(parts, numbers, {}, {})
            if not own.scale.stages:
                store.save((own.judge, trial), numbers, {}, {})
            folder = RunFolder(store.root / "trained" / trial.key).path
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "run.yaml").write_text("data: {rows: [1234, 80, 100]}")
