from pathlib import Path

from pixel_studies import filled
from widemargin.report.store import Store
from widemargin_studies import clean_accuracy, selection


def test_selection_reads_what_app_e1_stored(tmp_path: Path) -> None:
    for app, chosen in (
        (clean_accuracy.APP_FULL, selection.FULL),
        (clean_accuracy.APP_ONE, selection.ONE),
        (clean_accuracy.APP_SMALL, selection.SMALL),
    ):
        filled(Store(tmp_path), app)
        assert chosen.missing(Store(tmp_path)) == 0
