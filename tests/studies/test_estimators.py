from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from widemargin.data.images import ImageSet
from widemargin.measure.margin import margins
from widemargin.measure.robustness import pgd_attack
from widemargin.perturb.balls import OPEN, Linf
from widemargin.perturb.objectives import (
    CLIMBED,
    Objective,
    perturbed_gap,
    perturbed_log_entropy,
    perturbed_log_variation_ratio,
)
from widemargin.recipes import udp
from widemargin.report import study
from widemargin.report.store import Store, Stored
from widemargin.rng import Rng
from widemargin.uncertainty.estimators import EnsembleSpec
from widemargin.workers import Workers
from widemargin_studies import estimators, plane
from widemargin_studies.estimators import STUDY, evaluate, report
from widemargin_studies.estimators.cells import (
    CORRIDOR,
    DIGITS,
    ENTROPY,
    GAP,
    INFORMATION,
    KINDS,
    LAPLACE,
    REFERENCE,
    SLABS,
    Kind,
    same_as,
)

pytest.importorskip("sklearn")


def tiny() -> estimators.EstimatorStudy:
    return replace(
        STUDY,
        settings={
            DIGITS: estimators.setting_of(DIGITS, 5, (0,)),
            SLABS: estimators.setting_of(SLABS, 30, (0,)),
            CORRIDOR: estimators.setting_of(CORRIDOR, 30, (0,)),
        },
        kinds={
            "single": replace(STUDY.kinds["single"], climbs=(ENTROPY, INFORMATION, GAP)),
            "ensemble": Kind(EnsembleSpec(2), climbs=(ENTROPY, INFORMATION)),
        },
    )


def test_the_study_trains_judges_and_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A coarse look at margins is enough here.
    monkeypatch.setattr(evaluate, "margins", lambda network, cloud, _: margins(network, cloud, 41, 0))
    monkeypatch.setattr(evaluate, "ATTACK", pgd_attack(Linf(0.1), 0.05, 2))
    monkeypatch.setattr(plane, "PICTURE_RESOLUTION", 31)
    store, own = Store(tmp_path), tiny()
    # Digits: two measures of one network, two of an ensemble; each point set: one and two.
    assert study.left(own, store)[:2] == (4 + 2 * 3, 10)
    own.run(store, Workers(Console(quiet=True), 1))
    assert own.missing(store) == 0
    report = own.report(store)
    table = report.tables[4]
    assert [row[:3] for row in table.rows] == [
        ("single", "entropy", "1"),
        ("single", "gap", "1"),
        ("Laplace", "entropy", "5"),
        ("Laplace", "gap", "5"),
        ("ensemble", "entropy", "2"),
        ("ensemble", "mutual information", "2"),
    ]
    assert table.rows[1][3:5] == ("as entropy", "as entropy")
    by_information = table.columns.index("outside: MI")
    assert [bool(row[by_information]) for row in table.rows] == [False, False, True, True, True, True]
    cross = report.tables[2]
    assert cross.columns == ("UDP maximises", "entropy", "mutual information", "gap")
    assert [row[0] for row in cross.rows] == ["single", "Laplace", "ensemble"]
    assert [row[2] for row in cross.rows[:2]] == ["none", "none"]
    assert len(report.verdicts) == 8
    assert [picture.name for picture in report.pictures] == ["regions", "reliability"]


def test_the_study_has_an_entry_point_and_reports_on_seeds_that_chose_nothing() -> None:
    assert study.load("estimators") == STUDY
    assert all(seed >= 810 for own in STUDY.settings.values() for seed in own.seeds)
    assert STUDY.CORE_MINUTES < 45


def test_the_cross_is_full_but_for_cells_that_are_others() -> None:
    for data, count in ((DIGITS, 3 + 4 * 5), (SLABS, 1 + 4 * 3), (CORRIDOR, 1 + 4 * 3)):
        rows = STUDY.rows(data)
        assert len(rows) == count
        left_out = {(kind, measure) for kind in KINDS for measure in CLIMBED} - set(rows)
        assert all(same_as(*row, data) in ("none", "as entropy") for row in left_out)


def stored(worst: float = 0.0, **arrays: list[float]) -> Stored:
    return Stored({"worst": worst}, {name: np.array(values) for name, values in arrays.items()})


def test_wider_is_every_seed_above_every_seed() -> None:
    near, far = ("ensemble", "entropy"), ("dropout", "entropy")
    found = {
        REFERENCE: [stored(0.4), stored(0.6)],
        near: [stored(0.6), stored(0.9)],
        far: [stored(0.61), stored(0.7)],
    }
    assert report.wider_margins(found) == [far]


def test_better_on_images_is_two_std_with_every_seed() -> None:
    row, zeros = ("ensemble", "entropy"), [0.0] * 8
    # A mean of 1/2 with a std of the mean of 0.189: 2.6 of them.
    better, barely = [1.0, 0, 1, 0, 1, 0, 1, 0], [1.0, 0, 0, 0, 0, 0, 0, 1]
    found = {REFERENCE: [stored(loss=zeros)] * 2, row: [stored(loss=better)] * 2}
    assert report.better_on_images(found, "loss", 1) == [row]
    assert report.better_on_images(found, "loss", -1) == []
    found[row] = [stored(loss=better), stored(loss=barely)]
    assert report.better_on_images(found, "loss", 1) == []


def test_spreads_between_estimators_and_between_measures() -> None:
    def cell(*robust: float) -> list[Stored]:
        return [Stored({"robust": one}, {}) for one in robust]

    found = {
        REFERENCE: cell(0.4, 0.6),
        ("single", GAP): cell(0.7),
        (LAPLACE, ENTROPY): cell(0.2),
        (LAPLACE, GAP): cell(0.2),
    }
    between, within = report.spreads(found, "robust")
    assert between == pytest.approx(0.4 / 2**0.5)
    assert within == pytest.approx((0.02 / 2) ** 0.5)


def test_of_two_classes_entropy_variation_ratio_and_gap_move_points_alike() -> None:
    trial = STUDY.runs(SLABS, ("ensemble", ENTROPY))[0]
    cloud = SLABS.draw()
    network = trial.estimator.network(trial.build, trial.place, cloud).eval()

    def moved(measure: Objective) -> torch.Tensor:
        search = udp(Linf(0.5, OPEN), 0.05, 5, measure).perturb
        return search(network, cloud.points, cloud.labels, Rng.seeded(0, purpose="test")).delta

    by_entropy = moved(perturbed_log_entropy)
    for other in (perturbed_log_variation_ratio, -perturbed_gap):
        # On the boundary itself rounding decides where a point goes.
        alike = (moved(other) - by_entropy).abs().amax(1) < 1e-6
        assert alike.float().mean() > 0.95


def test_turned_digits_are_the_test_digits_without_zeros() -> None:
    tests = ImageSet("digits").draw().test
    strangers = evaluate.turned(tests)
    assert 0 not in strangers.labels
    assert len(strangers) == int((tests.labels != 0).sum())
    first = int((tests.labels != 0).nonzero()[0])
    assert torch.equal(strangers.points[0, 0, 0], tests.points[first, 0, :, -1])
