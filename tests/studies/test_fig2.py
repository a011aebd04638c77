from dataclasses import replace
from pathlib import Path

from plane_studies import workers
from widemargin.data.images import ImageSet
from widemargin.report.store import Store
from widemargin_studies.fig2 import STUDY


def test_the_study_end_to_end_on_small_images(tmp_path: Path) -> None:
    study, store = replace(STUDY, data=ImageSet("digits")), Store(tmp_path / "runs")
    study.run(store, workers())
    assert study.missing(store) == 0
    assert all(store.load(parts).numbers["images"] == 1797 - 360 for parts in study.parts.values())
    report = study.report(store)
    report.write(tmp_path / "report")
    assert "nearest training image of another class" in (tmp_path / "report" / "report.md").read_text()
