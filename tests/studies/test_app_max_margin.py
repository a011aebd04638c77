from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import widemargin as wm
from plane_studies import workers
from widemargin.report.store import Store
from widemargin_studies import app_max_margin as study

GRIDS = replace(study.GRIDS, picture=41)


def test_the_rule_answers_with_distances() -> None:
    cloud = wm.Dataset(torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]]), torch.tensor([0, 1, 1]))
    rule = study.NearestNeighbour(cloud)
    answers = rule(torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64))
    np.testing.assert_allclose(answers, [[0.0, -1.0], [-5.0, 0.0]], atol=1e-12)


def test_two_points_halve_their_distance() -> None:
    cloud = wm.Dataset(torch.tensor([[0.0, 0.0], [0.6, 0.8]]), torch.tensor([0, 1]))
    found = wm.measure.margin.margins(wm.Single(wm.at_input(study.NearestNeighbour(cloud))), cloud, resolution=51)
    np.testing.assert_allclose(found.margin, [0.5, 0.5], atol=1e-6)


def test_the_best_vertical_line() -> None:
    points = torch.tensor([[-0.5, 9.0], [-0.1, 0.0], [0.3, 5.0], [0.9, 1.0]])
    line = study.one_feature(wm.Dataset(points, torch.tensor([0, 0, 1, 1])))
    np.testing.assert_allclose([line.threshold, line.margin], [0.1, 0.2], rtol=1e-6)
    assert study.one_feature(wm.Dataset(points, torch.tensor([0, 1, 0, 1]))).margin < 0


def test_the_closest_pair() -> None:
    points, labels = np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0], [1.2, 1.0]]), np.array([0, 0, 1, 1])
    np.testing.assert_allclose(study.closest_pair(points, labels), [[1.0, 1.0], [1.2, 1.0]])


def test_the_study_measures_the_reference_and_reports_it(tmp_path: Path) -> None:
    small = replace(study.STUDY, sets=tuple(wm.data.LMS5(seed=seed, count=30) for seed in (1, 2)), grids=GRIDS)
    store = Store(tmp_path / "runs")
    small.run(store, workers())
    assert small.missing(store) == 0
    report = small.report(store)
    assert [verdict.outcome for verdict in report.verdicts][:3] == ["held"] * 3
    assert len(report.tables[0].rows) == 2
    assert report.write(tmp_path / "report")[0].stat().st_size > 0


def test_a_rule_that_is_off_is_found_out() -> None:
    class Shifted(study.NearestNeighbour):
        def forward(self, points: torch.Tensor) -> torch.Tensor:
            return super().forward(points + torch.tensor([0.01, 0.0]))

    cloud = wm.data.LMS5(seed=1, count=30).draw()
    measured = study.measure(Shifted(cloud), cloud, GRIDS, lambda done: None)
    assert [verdict.outcome for verdict in study.verdicts([measured])][1:3] == ["not held"] * 2
