from pathlib import Path

from pixel_studies import filled
from widemargin.report.store import Store
from widemargin_studies import published, tab5
from widemargin_studies.single_figure import table


def test_ours_stand_beside_the_papers(tmp_path: Path) -> None:
    store, own = Store(tmp_path), tab5.SMALL
    filled(store, own)
    printed = {key: value for key, value in published.TAB5.items() if key[0] != "standard"}
    told = table(own, store, "clean accuracy", "clean", printed)
    assert told.title == "Clean accuracy"
    assert [row[0] for row in told.rows] == [cell.label for cell in own.cells]
    assert told.rows[0][2] == "not printed"
    assert told.rows[1][1].startswith("31.")
    assert told.rows[1][2] == str(published.TAB5[own.cells[1].name, own.cells[1].eps][0])
