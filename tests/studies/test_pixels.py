from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from widemargin.data.images import ImageSet
from widemargin.measure.accuracy import accuracy
from widemargin.networks.named import LeNetSpec
from widemargin.perturb.balls import Linf
from widemargin.report import study
from widemargin.report.document import Report, Verdict
from widemargin.report.store import Store
from widemargin.report.verdicts import Estimate
from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import prepare
from widemargin.runs.runner import run_training
from widemargin.training.plan import Adam, Epochs, Plan
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single
from widemargin.workers import Job, Workers
from widemargin_studies import (
    app_long_walk,
    app_overfitting_cifar,
    app_overfitting_fashion,
    clean_accuracy,
    costs,
    fig5,
    pixels,
    published,
    selection,
    tab1,
    tab2,
    tab3,
    tab4,
    tab5,
)
from widemargin_studies.beside import Group, tell
from widemargin_studies.pixels import Bench, Cell, ImageStudy, Robustness, Scale

DIGITS = Bench(ImageSet("digits"), LeNetSpec(side=8), Plan(Epochs(20), Adam(1e-3), batch=256), (Linf(0.05),))
TINY = Scale(
    "tiny", seeds=(0, 1), fraction=0.2, epochs=0.1, batch=64, most_steps=2, tests=50, attacked=30, standard_attack=False
)
CELLS = (Cell(DIGITS, "PGD", 0.1, 0.02, 6), Cell(DIGITS, "UDP-PGD", 0.2, 0.04, 6))
PRINTED = {("PGD", 0.1): published.row("12.3±0.1"), ("UDP-PGD", 0.2): published.row("45.6±0.2")}
GROUPS = (Group("digits", CELLS, PRINTED, "robust accuracy"),)


def tiny() -> ImageStudy:
    def told(own: ImageStudy, store: Store) -> Report:
        return tell(GROUPS, "?", own, store)

    return ImageStudy("digits", TINY, CELLS, TINY.robustness(DIGITS.balls), told)


def test_a_study_trains_judges_and_sets_ours_beside_the_papers(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    store, own = Store(tmp_path), tiny()
    assert study.left(own, store)[:2] == (4, 4)
    assert study.left(own, store).core_minutes > 0
    own.run(store, Workers(Console(quiet=True), 1))
    assert own.missing(store) == 0
    table = own.report(store).tables[0]
    assert table.columns == ("method", "clean", "linf 0.05", "paper")
    for cell, row in zip(CELLS, table.rows, strict=True):
        clean, robust = (own.numbers(cell, store, name) for name in ("clean", repr(DIGITS.balls[0])))
        assert all(0 <= b <= a <= 1 for a, b in zip(clean, robust, strict=True))
        assert row[2] == f"{50 * sum(robust):.1f} ± {100 * abs(robust[0] - robust[1]) / 2**0.5:.1f}"
        assert row[3] == str(PRINTED[cell.name, cell.eps][0])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("numbers.json")}
    own.run(store, Workers(Console(quiet=True), 1))
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("numbers.json")}


@pytest.mark.parametrize("standard_attack", [pytest.param(True, marks=pytest.mark.slow), False])
def test_robustness_is_measured_on_some_and_accuracy_on_all_test_images(standard_attack: bool) -> None:
    pytest.importorskip("sklearn")
    parts = replace(DIGITS.data, most_tests=60).draw()
    network = Single(at_input(DIGITS.network.build(torch.Generator().manual_seed(0))))
    numbers, arrays = Robustness(DIGITS.balls, 12, standard_attack)(network, parts)
    (ball,) = map(repr, DIGITS.balls)
    assert (numbers["n"], numbers["attacked"], arrays[ball].shape) == (60, 12, (12,))
    assert numbers["clean"] == accuracy(network, parts.test)
    assert numbers[ball] == arrays[ball].mean()


def test_a_scale_does_less_of_everything_and_says_so() -> None:
    scaled = TINY.cell(CELLS[0])
    assert (scaled.steps, scaled.alpha) == (2, pytest.approx(0.06))
    assert scaled.bench.plan.length == Epochs(2)
    assert scaled.bench.data == ImageSet("digits", fraction=0.2, most_tests=50)


@pytest.mark.parametrize(
    ("groups", "full"), [(tab1.GROUPS, tab1.FULL), (tab2.GROUPS, tab2.FULL), (tab3.GROUPS, tab3.FULL)]
)
def test_every_printed_row_is_a_cell(groups: tuple[Group, ...], full: ImageStudy) -> None:
    for group in groups:
        assert {(cell.name, cell.eps) for cell in group.cells} - {("standard", 0.0)} == set(group.printed)
        for cell in group.cells:
            assert cell in full.cells
            # At the scale of the paper nothing is changed.
            assert full.scale.cell(cell) == cell
            # The published rule: as many steps as reach the edge (Fashion-MNIST's are published as they are).
            assert cell.bench.data.name == "fashion-mnist" or cell.steps >= round(cell.eps / cell.alpha)
            assert (
                cell.name == "standard"
                or len(group.printed[cell.name, cell.eps]) == len(group.balls) + group.with_clean
            )


ALL = {
    "tab1": (tab1.FULL, tab1.SMALL),
    "tab2": (tab2.FULL, tab2.SMALL),
    "tab3": (tab3.FULL, tab3.SMALL),
    "tab4": (tab4.FULL, tab4.SMALL),
    "tab5": (tab5.FULL, tab5.SMALL),
    "fig4": (clean_accuracy.FIG4_FULL, clean_accuracy.FIG4_SMALL),
    "app-clean-accuracy": (clean_accuracy.APP_FULL, clean_accuracy.APP_SMALL),
    "fig5": (fig5.FULL, fig5.SMALL),
    "selection": (selection.FULL, selection.SMALL),
    "app-overfitting-fashion": (app_overfitting_fashion.FULL, app_overfitting_fashion.SMALL),
    "app-overfitting-cifar": (app_overfitting_cifar.FULL, app_overfitting_cifar.SMALL),
}


EVERY = [own for both in ALL.values() for own in both] + [tab2.ONE, clean_accuracy.APP_ONE, selection.ONE]


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


@pytest.mark.parametrize("own", EVERY, ids=lambda own: f"{own.TITLE} {own.scale.name}")
def test_reports_read_only_the_store(own: ImageStudy, tmp_path: Path) -> None:
    store = Store(tmp_path)
    filled(store, own)
    assert own.missing(store) == 0
    written = own.report(store).write(tmp_path / "report")
    text = (tmp_path / "report" / "report.md").read_text()
    assert f"scale {own.scale.name}" in text
    # Sizes are those of the folders, not the published ones.
    assert "1,234 images to train on, 80 to validate, 100 to test" in text
    assert all(path.stat().st_size > 0 for path in written)


def test_studies_have_both_scales_on_the_command_line() -> None:
    for name, (full, small) in ALL.items():
        assert study.load(name) is full
        assert study.load(f"{name}-small") is small
        assert full.scale.seeds == (0, 1, 2)
        assert full.scale.tests is None
    assert study.load("tab2-one-seed") is tab2.ONE
    assert study.load("app-clean-accuracy-one-seed") is clean_accuracy.APP_ONE


def test_the_papers_tables_are_held_to_our_own_criterion(tmp_path: Path) -> None:
    printed, counts = {}, {}
    for own, groups in ((tab1.FULL, tab1.GROUPS), (tab2.FULL, tab2.GROUPS), (tab3.FULL, tab3.GROUPS)):
        filled(Store(tmp_path), own)
        for group, verdict in zip(groups, own.report(Store(tmp_path)).verdicts, strict=True):
            assert isinstance(verdict, Verdict)
            name = f"{group.title}: {group.shows}"
            printed[name] = verdict.printed
            counts[name] = verdict.evidence.partition("in the paper's table in ")[2]
    assert counts == {
        "CIFAR-10, best robust: robust accuracy": "4, beyond chance in 3",
        "CIFAR-10, best trade-off: trade-off": "4, beyond chance in 2",
        "SVHN, best robust: robust accuracy": "1, beyond chance in 1",
        "SVHN, best trade-off: trade-off": "4, beyond chance in 3",
        "Fashion-MNIST: robust accuracy": "1, beyond chance in 1",
        "Fashion-MNIST: trade-off": "2, beyond chance in 1",
        "CIFAR-10, augmented: robust accuracy": "2, beyond chance in 1",
    }
    assert list(printed.values()) == ["held", "undecided", "undecided", "held", "not held", "not held", "undecided"]


def test_published_settings() -> None:
    svhn, cifar = ([c for c in clean_accuracy.FIG4_FULL.cells if c.bench == b] for b in (pixels.SVHN, pixels.CIFAR))
    assert {cell.alpha for cell in svhn} == {0.002}
    assert {(cell.eps, cell.alpha) for cell in cifar if cell.eps in (0.04, 0.05)} == {(0.04, 0.001), (0.05, 0.002)}
    # Clean accuracy is that of all test images, and at most 10,000 are attacked.
    for full in (tab1.FULL, clean_accuracy.FIG4_FULL):
        tests = {trial.data for cell in full.cells if cell.bench.data.name == "svhn" for trial in full.runs(cell)}
        assert {data.most_tests for data in tests if isinstance(data, ImageSet)} == {26_032}
        assert full.scale.attacked == 10_000
    assert {trial.data for cell in tab5.FULL.cells for trial in tab5.FULL.runs(cell)} == {
        ImageSet("cifar-10", fraction=0.05, seed=42)
    }


def test_networks_are_shared_and_cost_nothing_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()

    def measured(shape: object, batch: int) -> float:
        seen.add(batch)
        return 1.0

    monkeypatch.setattr(costs, "_seconds_per_pass", measured)
    store, own = Store(tmp_path), tab2.ONE
    whole = study.left(own, store)
    # 55,000 images of 12.5 passes on average for 100 epochs, and three times 1,000 images in 4 balls.
    udp = [cell for cell in own.cells if cell.label == "UDP-PGD (eps 0.5)"]
    alone = replace(own, cells=tuple(udp))
    judged = 3 * alone.judge.passes / 60
    assert study.left(alone, store).core_minutes == pytest.approx(100 * 55_000 * 12.5 / 60 + judged)
    assert seen == {256}
    folder = RunFolder(tmp_path / "trained" / own.runs(udp[0])[0].key)
    folder.path.mkdir(parents=True)
    folder.records.write_text('{"update": 10750, "loss": 1.0}\n')
    # Half of it is done: epoch 50.
    assert study.left(alone, store).core_minutes == pytest.approx(50 * 55_000 * 12.5 / 60 + judged)
    assert study.left(own, store).core_minutes == pytest.approx(whole.core_minutes - 50 * 55_000 * 12.5 / 60)


def test_the_radius_that_validation_chooses(tmp_path: Path) -> None:
    """Numbers that rise with the cell's place: the largest radius is best for all, and UDP cannot be best beyond it."""
    store = Store(tmp_path)
    filled(store, selection.ONE)
    told = selection.ONE.report(store)
    assert [verdict.word for verdict in told.verdicts] == ["not held (the paper's own numbers: held)"] * 2
    assert [row[-2] for row in told.tables[0].rows] == ["0.5"] * 4
    assert [row[0] for row in told.tables[1].rows] == [f"{method} (eps 0.5)" for method in clean_accuracy.METHODS]
    assert told.facts["seeds"] == [0]
    assert told.facts["networks"][0]["epochs"] == 20
    better, worse = Estimate(0.8, 0.7, 0.9), Estimate(0.4, 0.3, 0.5)
    assert selection.best_is_larger({0.2: worse, 0.5: better}, 0.2) == "held"
    assert selection.best_is_larger({0.2: better, 0.5: worse}, 0.2) == "not held"
    assert selection.best_is_larger({0.2: better, 0.5: better}, 0.2) == "undecided"


def test_the_long_walk_is_judged_image_by_image(tmp_path: Path) -> None:
    store, own = Store(tmp_path), app_long_walk.SMALL
    (trial,) = own.runs(own.cells[0])
    ways = {"UDP": np.linspace(0.4, 0.6, 8), "PGD": np.linspace(3, 4, 8)}
    arrays = {"labels": np.arange(8), **{name: np.zeros((8, 3, 4, 4)) for name in ("clean", *ways)}}
    for name, way in ways.items():
        arrays |= {f"{name} {what}": way for what in ("l2", "linf", "lead")}
        arrays[f"{name} own probability"] = np.full(8, 0.3 if name == "UDP" else 0.001)
    store.save((own.judge, trial), {"n": 8, "names": list("abcdefgh")}, arrays, {})
    (tmp_path / "trained" / trial.key).mkdir(parents=True)
    (tmp_path / "trained" / trial.key / "run.yaml").write_text("data: {rows: [1234, 80, 100]}")
    assert [verdict.word for verdict in own.report(store).verdicts] == ["held", "held"]


def test_selection_reads_what_app_e1_stored(tmp_path: Path) -> None:
    for app, chosen in (
        (clean_accuracy.APP_FULL, selection.FULL),
        (clean_accuracy.APP_ONE, selection.ONE),
        (clean_accuracy.APP_SMALL, selection.SMALL),
    ):
        filled(Store(tmp_path), app)
        assert chosen.missing(Store(tmp_path)) == 0


def test_printed_numbers_are_read_as_printed() -> None:
    assert [str(cell) for cell in published.row("61.8±0.8 31.0")] == ["61.8 ± 0.8", "31.0"]
    assert replace(CELLS[0]).label == "PGD (eps 0.1)"


STAGED = replace(TINY, seeds=(0,), epochs=0.6, stages=(1, 3, 12))


def staged() -> ImageStudy:
    return replace(tiny(), scale=STAGED)


class Killed(Exception):
    pass


class KilledAfter(Workers):
    """Does so many jobs, then dies."""

    def do(self, jobs: Sequence[Job], title: str) -> None:
        for job in jobs:
            if self.count == 0:
                raise Killed
            Workers(self.console, 1).do([job], title)
            object.__setattr__(self, "count", self.count - 1)


def test_stages_are_prefixes_of_one_run_and_go_on_whatever_kills_them(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    store, own, quiet = Store(tmp_path), staged(), Console(quiet=True)
    assert study.left(own, store)[:2] == (6, 6)
    with pytest.raises(Killed):
        own.run(store, KilledAfter(quiet, 3))
    # Both stand at epoch 1, and PGD at 3: the report says so and reads what both have.
    assert own.missing(store) == 3
    told = own.report(store)
    assert "All networks stand at epoch 1 of 12. EOT farther on: PGD (eps 0.1), seed 0: epoch 3." in told.settings
    assert "; 1 of 12 epochs of batches of 64, Adam(" in told.settings
    early = own.numbers(CELLS[0], store, "clean")
    (trial,) = own.runs(CELLS[0])
    shorter = replace(trial, plan=replace(trial.plan, length=Epochs(1)))
    network = run_training(prepare(shorter)).network
    assert early == [accuracy(network, trial.data.draw().test)]
    own.run(store, Workers(quiet, 1))
    assert own.missing(store) == 0
    assert "; 12 epochs of batches of 64, Adam(" in own.report(store).settings
    assert "All networks stand at epoch 12 of 12." in own.report(store).settings
    assert len(list((tmp_path / "trained").iterdir())) == 2
    at_once = replace(own, scale=replace(STAGED, stages=()))
    # The last stage is what a study without stages stores.
    assert at_once.missing(store) == 0
    # Weights were kept on the way, and another judge finds them; a training that kept none does not go back.
    other = replace(own, judge=replace(own.judge, attacked=20), scale=replace(STAGED, stages=(1, 2, 10)))
    assert study.left(other, store).core_minutes < study.left(other, Store(tmp_path / "nowhere")).core_minutes
    other.run(store, Workers(quiet, 1))
    assert [other._parts(trial, epoch) in store for epoch in (1, 2, 10)] == [True, False, True]
    assert other.missing(store) == 0
