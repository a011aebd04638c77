import re
from pathlib import Path

from widemargin.report import study
from widemargin_studies.pages import PAGES, written

ROOT = Path(__file__).parents[2]


def test_the_pages_are_what_make_results_writes(tmp_path: Path) -> None:
    for path in written(ROOT / "results", tmp_path):
        assert path.read_text() == (ROOT / "docs" / path.name).read_text(), f"run `make results`: {path.name}"


def test_nothing_that_was_measured_stands_in_an_introduction() -> None:
    """Numbers come from the results; beside them they would be pasted, and stay when those change."""
    for name in PAGES:
        text = (ROOT / "results" / f"{name}.md").read_text()
        assert not re.search(r"\.\d|\d ?%|± ", text.replace("Fig. 2", "")), name
    assert {path.stem for path in (ROOT / "results").glob("*.md")} == set(PAGES)


def test_every_page_names_studies_that_exist() -> None:
    assert {name for names in PAGES.values() for name in names} <= set(study.names())
