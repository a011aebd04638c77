from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from pixel_studies import CELLS, DIGITS, filled
from widemargin.data.images import ImageSet
from widemargin.measure.accuracy import accuracy
from widemargin.report import study
from widemargin.report.document import Report
from widemargin.report.store import Store
from widemargin.runs.prepare import prepare
from widemargin.runs.runner import run_training
from widemargin.training.plan import Epochs
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single
from widemargin.workers import Job, Workers
from widemargin_studies import (
    app_overfitting_cifar,
    app_overfitting_fashion,
    clean_accuracy,
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
from widemargin_studies.pixels import ImageStudy, Robustness, Scale

TINY = Scale(
    "tiny", seeds=(0, 1), fraction=0.2, epochs=0.1, batch=64, most_steps=2, tests=50, attacked=30, standard_attack=False
)


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
    assert "All networks stand at epoch 1 of 12. Judged farther on: PGD (eps 0.1), seed 0: epoch 3." in told.settings
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
