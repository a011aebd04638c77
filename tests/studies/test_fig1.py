from dataclasses import replace
from pathlib import Path

from plane_studies import workers
from widemargin.report.store import Store
from widemargin_studies.app_three_cases import ThreeCases
from widemargin_studies.fig1 import Fig1
from widemargin_studies.pictorial import GRIDS, TwoPairsMoved


def test_both_pictorial_studies_share_their_work_and_report_it(tmp_path: Path) -> None:
    work = TwoPairsMoved(seeds=range(2), grids=replace(GRIDS, picture=41))
    fig1, three_cases = Fig1(work=work), ThreeCases(work=work)
    store = Store(tmp_path / "runs")
    assert fig1.missing(store) == 2
    fig1.run(store, workers())
    assert fig1.missing(store) == three_cases.missing(store) == 0
    for study in (fig1, three_cases):
        report = study.report(store)
        # Two seeds decide nothing, but speak against nothing; the last claim of Fig. 1 depends on how far a network's
        # boundary is off the best one.
        assert [verdict.outcome for verdict in report.verdicts][:4] == ["undecided"] * 4
        written = report.write(tmp_path / type(study).__name__)
        assert len([path for path in written if path.suffix == ".png"]) == 1
