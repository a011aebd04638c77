from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from widemargin.data.images import ImageSet
from widemargin.networks.named import LeNetShape
from widemargin.perturb.balls import Linf
from widemargin.plan import Adam, Epochs, Plan
from widemargin.report import study
from widemargin.report.document import Report
from widemargin.report.store import Store
from widemargin.run import key_of
from widemargin.workers import Workers
from widemargin_studies import app_overfitting_cifar, clean_accuracy, fig5, published, tab1, tab2, tab3, tab4, tab5
from widemargin_studies.beside import Group, tell
from widemargin_studies.pixels import Bench, Cell, ImageStudy, Robustness, Scale

DIGITS = Bench(ImageSet("digits"), LeNetShape(side=8), Plan(Epochs(20), Adam(1e-3), batch=256), (Linf(0.05),))
TINY = Scale("tiny", seeds=(0, 1), fraction=0.2, epochs=0.1, batch=64, most_steps=2, tests=50, standard_attack=False)
CELLS = (Cell(DIGITS, "PGD", 0.1, 0.02, 6), Cell(DIGITS, "UDP-PGD", 0.2, 0.04, 6))
PRINTED = {("PGD", 0.1): published.row("12.3±0.1"), ("UDP-PGD", 0.2): published.row("45.6±0.2")}
GROUPS = (Group("digits", CELLS, PRINTED, "robust accuracy"),)


def tiny() -> ImageStudy:
    def told(own: ImageStudy, store: Store) -> Report:
        return tell(GROUPS, "?", own, store)

    return ImageStudy("digits", TINY, CELLS, Robustness(DIGITS.balls, TINY.tests, False), told)


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


def test_a_scale_does_less_of_everything_and_says_so() -> None:
    scaled = TINY.cell(CELLS[0])
    assert (scaled.steps, scaled.alpha) == (2, pytest.approx(0.06))
    assert scaled.bench.plan.length == Epochs(2)
    assert scaled.bench.data == ImageSet("digits", fraction=0.2, most_tests=50)
    assert "2 epochs" in TINY.told(DIGITS, attacked=True)
    assert "flatters" in TINY.told(DIGITS, attacked=True)


@pytest.mark.parametrize(
    ("groups", "full"), [(tab1.GROUPS, tab1.FULL), (tab2.GROUPS, tab2.FULL), (tab3.GROUPS, tab3.FULL)]
)
def test_every_printed_row_is_a_cell(groups: tuple[Group, ...], full: ImageStudy) -> None:
    for group in groups:
        assert {(cell.name, cell.eps) for cell in group.cells} == set(group.printed)
        for cell in group.cells:
            assert cell in full.cells
            # At the scale of the paper nothing is changed.
            assert full.scale.cell(cell) == cell
            # The published rule: as many steps as reach the edge (Fashion-MNIST's are published as they are).
            assert cell.bench.data.name == "fashion-mnist" or cell.steps >= round(cell.eps / cell.alpha)
            assert len(group.printed[cell.name, cell.eps]) == len(group.balls) + group.with_clean


ALL = {
    "tab1": (tab1.FULL, tab1.SMALL),
    "tab2": (tab2.FULL, tab2.SMALL),
    "tab3": (tab3.FULL, tab3.SMALL),
    "tab4": (tab4.FULL, tab4.SMALL),
    "tab5": (tab5.FULL, tab5.SMALL),
    "fig4": (clean_accuracy.FIG4_FULL, clean_accuracy.FIG4_SMALL),
    "app-clean-accuracy": (clean_accuracy.APP_FULL, clean_accuracy.APP_SMALL),
    "fig5": (fig5.FULL, fig5.SMALL),
    "app-overfitting-cifar": (app_overfitting_cifar.FULL, app_overfitting_cifar.SMALL),
}


@pytest.mark.parametrize(
    "own", [own for both in ALL.values() for own in both], ids=lambda own: f"{own.TITLE} {own.scale.name}"
)
def test_reports_read_only_the_store(own: ImageStudy, tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number, cell in enumerate(own.cells):
        for trial in own.trials(cell):
            radii = [f"{radius:g}" for radius in app_overfitting_cifar.RADII]
            names = ["clean", "transfer", *map(repr, cell.bench.balls), *radii]
            numbers = {"n": 100, **dict.fromkeys(names, 0.3 + 0.01 * number + 0.001 * trial.seed)}
            store.save(key_of(own.judge, trial), {}, numbers, {}, {})
    assert own.missing(store) == 0
    written = own.report(store).write(tmp_path / "report")
    text = (tmp_path / "report" / "report.md").read_text()
    assert f"scale {own.scale.name}" in text
    assert all(path.stat().st_size > 0 for path in written)


def test_studies_have_both_scales_on_the_command_line() -> None:
    for name, (full, small) in ALL.items():
        assert study.load(name) is full
        assert study.load(f"{name}-small") is small
        assert full.scale.seeds == (0, 1, 2)
        assert full.scale.tests == 10_000


def test_printed_numbers_are_read_as_printed() -> None:
    assert [str(cell) for cell in published.row("61.8±0.8 31.0")] == ["61.8 ± 0.8", "31.0"]
    assert replace(CELLS[0]).label == "PGD (eps 0.1)"
