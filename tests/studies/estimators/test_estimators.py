from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from widemargin.perturb.balls import OPEN, Linf
from widemargin.perturb.objectives import Objective, perturbed_gap, perturbed_log_entropy, perturbed_log_variation_ratio
from widemargin.perturb.pgd import pgd_search
from widemargin.recipes import udp
from widemargin.report import study
from widemargin.report.store import Store
from widemargin.rng import Rng
from widemargin.uncertainty.estimators import EnsembleSpec
from widemargin.workers import Workers
from widemargin_studies import estimators
from widemargin_studies.estimators import STUDY
from widemargin_studies.estimators.cells import CORRIDOR, DIGITS, ENTROPY, GAP, INFORMATION, SLABS, Kind
from widemargin_studies.estimators.evaluate import Evaluation
from widemargin_studies.plane import Grids

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
        # A coarse look at margins is enough here.
        evaluation=Evaluation(pgd_search(Linf(0.1), 0.05, 2), Grids(resolution=41, refinements=0, picture=31)),
    )


def test_the_study_trains_judges_and_tells(tmp_path: Path) -> None:
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
