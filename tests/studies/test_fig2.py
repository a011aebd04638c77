import io
from pathlib import Path

import pytest
import rich.console

from widemargin.data.images import ImageSet
from widemargin.report.store import Store
from widemargin.workers import Workers
from widemargin_studies import fig2


def test_the_study_end_to_end_on_small_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fig2, "DATA", ImageSet("digits"))
    store = Store(tmp_path / "runs")
    fig2.run(store, Workers(rich.console.Console(file=io.StringIO()), 1))
    assert fig2.missing(store) == 0
    assert all(store.load(parts).numbers["images"] == 1797 - 360 for parts in fig2.PARTS.values())
    report = fig2.report(store)
    report.write(tmp_path / "report")
    assert "nearest training image of another class" in (tmp_path / "report" / "report.md").read_text()
