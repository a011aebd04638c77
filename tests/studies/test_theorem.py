from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import widemargin as wm
from plane_studies import workers
from widemargin.report.store import Store
from widemargin_studies import theorem as study
from widemargin_studies.theorem import Mixture

DRAWS = 200_000


@pytest.mark.parametrize("mixture", [Mixture(-1.0, 1.0), Mixture(-0.5, 2.0, 0.3)], ids=str)
@pytest.mark.parametrize("rate", [0.2, 0.8])
def test_one_update_goes_as_far_as_the_theorem_says_and_no_other_way(mixture: Mixture, rate: float) -> None:
    start = mixture.best - 0.6
    after = study.updated(np.full(DRAWS, start), mixture, rate, np.random.default_rng(0))
    assert abs(study.in_errors(after, study.expected(start, mixture, rate))) < study.CHANCE
    # The rate without the half is what a mistake would give.
    assert abs(study.in_errors(after, mixture.best + (1 - rate) * (start - mixture.best))) > 20


def test_the_expectation_decays() -> None:
    mixture = Mixture(0.0, 2.0)
    twice = study.expected(study.expected(3.0, mixture, 0.4), mixture, 0.4)
    assert study.expected(3.0, mixture, 0.4, updates=2) == pytest.approx(twice) == pytest.approx(1 + 2 * 0.64)


def test_steps_stop_at_the_boundary() -> None:
    rng = np.random.default_rng(0)
    points = np.array([-1.0, 0.5, 0.1]).repeat(1_000)
    ends = study.stepped(points, 0.2, reach=0.5, steps=5, rng=rng)
    assert (np.sign(ends - 0.2).round() * np.sign(points - 0.2) >= 0).all()
    lengths = np.abs(ends - points)[:1_000]
    np.testing.assert_allclose(np.unique(lengths.round(9)), [0.1, 0.2, 0.3, 0.4, 0.5])
    np.testing.assert_allclose(ends[2_000:], 0.2)


def test_the_oracle_answers_between_its_points() -> None:
    answers = study.between(np.zeros(DRAWS), np.ones(DRAWS), np.random.default_rng(0))
    assert 0 <= answers.min() < answers.max() <= 1
    assert abs(study.in_errors(answers, 0.5)) < study.CHANCE


def test_the_study_runs_and_tells_ldp_from_udp(tmp_path: Path) -> None:
    published = study.STUDY
    small = study.Theorem(
        simulations=tuple(replace(one, draws=20_000, chains=400, updates=10) for one in published.simulations[:2]),
        seeds=published.seeds[:2],
        data=wm.data.TwoGaussians(seed=1, count=40),
        plan=wm.Plan(wm.Updates(60), wm.Adam(5e-2)),
    )
    store = Store(tmp_path / "runs")
    assert small.missing(store) == 2 + 2 * len(small.runs)
    small.run(store, workers())
    assert small.missing(store) == 0
    losses = {case: max(store.load((run,)).numbers["loss"] for run in own) for case, own in small.runs.items()}
    assert losses["LDP-PGD", 3.0] > 0.6 > losses["UDP-PGD", 3.0]
    report = small.report(store)
    # Two seeds tell nothing about the discrete algorithm.
    outcomes = [verdict.outcome for verdict in report.verdicts]
    assert outcomes[:5] == ["held", "held", "not held", "undecided", "not held"]
    assert len([path for path in report.write(tmp_path / "report") if path.suffix == ".png"]) == 2
