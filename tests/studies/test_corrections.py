from dataclasses import replace
from pathlib import Path

import pytest

import widemargin as wm
from plane_studies import COARSE, workers
from widemargin.perturb.pgd import pgd_search
from widemargin.report.store import Store
from widemargin_studies import corrections
from widemargin_studies.corrections import STUDY, Change


def test_each_comparison_differs_in_the_search_alone() -> None:
    for compared in (*corrections.IMAGES[corrections.LENET], *corrections.IMAGES[corrections.NORMED]):
        assert compared.ours.perturb != compared.theirs.perturb
        # The paper's TRADES is another criterion too, and said to be.
        assert (compared.ours.criterion == compared.theirs.criterion) == (compared.name != corrections.FORM)


@pytest.mark.parametrize(("gains", "outcome"), [((3.0, 4.0, 3.5), "held"), ((-1.0, 4.0, -3.5), "undecided")])
def test_a_change_is_judged_by_the_differences_between_the_same_seeds(gains: tuple[float, ...], outcome: str) -> None:
    theirs = (10.0, 50.0, 90.0)
    change = Change("", "", "", "points", [there + gain for there, gain in zip(theirs, gains, strict=True)], theirs)
    assert change.outcome == outcome


def test_the_study_runs_reports_and_has_nothing_left(tmp_path: Path) -> None:
    study = replace(
        STUDY,
        seeds=(0, 1),
        images={network: compared[-1:] for network, compared in STUDY.images.items()},
        plan=wm.Plan(wm.Updates(1), wm.Adam(1e-3), batch=100),
        attack=pgd_search(wm.Linf(0.1), alpha=0.1, steps=1),
        points={data: compared[:1] for data, compared in STUDY.points.items()},
        plans=dict.fromkeys(STUDY.plans, wm.Plan(wm.Updates(30), wm.Adam(5e-3))),
        grids=COARSE,
    )
    store = Store(tmp_path / "runs")
    study.run(store, workers())
    assert study.missing(store) == 0
    report = study.report(store)
    # Two of searches alone; clean and robust accuracy of one comparison on each network; one on each set of points.
    assert len(report.verdicts) == len(report.tables[0].rows) == 2 + 2 * 2 + 2
    assert all(path.stat().st_size > 500 for path in report.write(tmp_path / "report"))
