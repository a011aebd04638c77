from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from small_audits import QUESTION
from widemargin.auditing.result import Audit, Shown
from widemargin.report.audit_page import page

pytestmark = pytest.mark.usefixtures("quick_surrogate", "one_thread")


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.images = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.images += tag == "img"

    def handle_data(self, data: str) -> None:
        self.cells.append(data.strip())


def test_the_page_has_every_part(whole: Audit) -> None:
    found = whole
    texts = _Texts()
    texts.feed(page(found).html())
    for words in (
        "Accuracy under AutoAttack",
        "Points broken by each attack",
        "Margins",
        "Class by class, clean and under AutoAttack",
        "proven lower bound",
    ):
        assert words in texts.cells
    assert f"{100 * found.robust[0].fraction:.1f} %" in texts.cells
    # Points that are no images have no pictures of themselves.
    assert texts.images == 2


def test_the_page_shows_proofs_as_far_as_they_were_looked_for(whole: Audit) -> None:
    easy = replace(whole, points={**whole.points, "certified": np.full(24, QUESTION.balls[-1].radius)})
    figure = next(picture.figure for picture in page(easy).pictures if picture.name == "robustness")
    (proven,) = (line for line in figure.axes[0].lines if line.get_label() == "proven")
    assert set(proven.get_ydata()) == {100.0}
    without = replace(whole, points={**whole.points, "certified": np.full(24, np.nan)})
    columns = [table.columns for table in page(without).tables if table.title == "Accuracy under AutoAttack"]
    assert columns == [("points moved within", "accuracy", "95 % interval")]
    assert len(next(table for table in page(easy).tables if table.title == "Accuracy under AutoAttack").columns) == 4


def test_a_class_may_be_called_anything(whole: Audit) -> None:
    image, zero = np.zeros((1, 1, 4, 4)), np.zeros(1, dtype=int)
    shown = Shown(image, image, zero, zero, np.ones(1))
    text = page(replace(whole, classes=(r"$\foo{$<b>", "b", "c", "d"), shown=shown)).html()
    assert "<b>" not in text
