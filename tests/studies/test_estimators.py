from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from widemargin.data.images import ImageSet
from widemargin.measure.margin import margins
from widemargin.measure.robustness import pgd_attack
from widemargin.perturb.balls import OPEN, Linf
from widemargin.perturb.objectives import Objective, perturbed_gap, perturbed_log_entropy, perturbed_log_variation_ratio
from widemargin.recipes import udp
from widemargin.report import study
from widemargin.report.store import Store, Stored
from widemargin.rng import Rng
from widemargin.run import Members
from widemargin.workers import Workers
from widemargin_studies import estimators, plane
from widemargin_studies.estimators import (
    CORRIDOR,
    DIGITS,
    ENTROPY,
    FITTED,
    GAP,
    INFORMATION,
    REFERENCE,
    SLABS,
    STUDY,
    Kind,
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
            "ensemble": Kind(Members(2), climbs=(ENTROPY, INFORMATION)),
        },
    )


def test_the_study_trains_judges_and_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A coarse look at margins is enough here.
    monkeypatch.setattr(estimators, "margins", lambda network, cloud, _: margins(network, cloud, 41, 0))
    monkeypatch.setattr(estimators, "ATTACK", pgd_attack(Linf(0.1), 0.05, 2))
    monkeypatch.setattr(plane, "PICTURE_RESOLUTION", 31)
    store, own = Store(tmp_path), tiny()
    # Digits: two measures of one network, two of an ensemble; each point set: one and two.
    assert study.left(own, store)[:2] == (4 + 2 * 3, 10)
    own.run(store, Workers(Console(quiet=True), 1))
    assert own.missing(store) == 0
    report = own.report(store)
    table = report.tables[0]
    assert [row[:3] for row in table.rows] == [
        ("single", "entropy", "1"),
        ("Laplace", "entropy", "5"),
        ("single", "gap", "1"),
        ("ensemble", "entropy", "2"),
        ("ensemble", "mutual information", "2"),
    ]
    assert table.rows[2][3:5] == ("as entropy", "as entropy")
    by_information = table.columns.index("outside: MI")
    assert [bool(row[by_information]) for row in table.rows] == [False, True, False, True, True]
    assert len(report.verdicts) == 5
    assert [picture.name for picture in report.pictures] == ["regions", "reliability"]


def test_the_study_has_an_entry_point_and_reports_on_seeds_that_chose_nothing() -> None:
    assert study.load("estimators") == STUDY
    assert all(seed >= 800 for own in STUDY.settings.values() for seed in own.seeds)
    assert STUDY.CORE_MINUTES < 15


def test_better_is_more_than_one_std_of_the_difference() -> None:
    def measured(*worst: float) -> list[Stored]:
        return [Stored({"worst": one}, {}) for one in worst]

    near, far = ("ensemble", "entropy"), ("dropout", "entropy")
    found = {
        REFERENCE: measured(0.4, 0.6),
        FITTED: measured(0.5, 0.5),
        near: measured(0.5, 0.7),
        far: measured(0.6, 0.8),
    }
    # The reference's std is 0.141, as that of the others: 0.2 = hypot(0.141, 0.141) is what it takes.
    assert estimators._wider(found) == []
    found[far] = measured(0.61, 0.81)
    assert estimators._wider(found) == [far]


def test_of_two_classes_entropy_variation_ratio_and_gap_move_points_alike() -> None:
    trial = STUDY.trials(SLABS, ("ensemble", ENTROPY))[0]
    cloud = SLABS.draw()
    network = trial.members.network(trial.build, trial.place, cloud).eval()

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
    strangers = estimators.turned(tests)
    assert 0 not in strangers.labels
    assert len(strangers) == int((tests.labels != 0).sum())
    first = int((tests.labels != 0).nonzero()[0])
    assert torch.equal(strangers.points[0, 0, 0], tests.points[first, 0, :, -1])
