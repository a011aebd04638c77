from dataclasses import replace

import numpy as np
import pytest

from small_audits import CONFIG, images, ten_points, unbroken
from widemargin.auditing.result import Audit
from widemargin.report.audit_pictures import curve, pictures, sheet

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_picture_of_margins_draws_no_distance_that_is_not_known() -> None:
    """Before, points that no attack moved were drawn at the largest distance of the others, or at 0."""
    (picture,) = (one for one in pictures(unbroken([0.0] * 2 + [np.inf] * 8)) if one.name == "margins")
    (panel,) = picture.figure.axes
    (line,) = panel.lines
    assert line.get_ydata().tolist() == [0.0, 0.0]  # type: ignore[union-attr]
    assert panel.get_ylim() == pytest.approx((0, 1.05 * 0.2))
    assert "no attack succeeded, at any norm" in panel.get_legend_handles_labels()[1]
    assert "The margin of each point is at most this, without certificates" in picture.caption
    assert "For 8 points (shaded) no attack" in picture.caption
    (whole,) = (one for one in pictures(ten_points()) if one.name == "margins")
    assert "shaded" not in whole.caption


def test_the_picture_of_margins_ends_at_the_largest_margin_where_eps_is_far_beyond() -> None:
    """Before, at eps 10 the curve was a line at the bottom."""
    (picture,) = (one for one in pictures(unbroken([0.0] * 2 + [0.01] * 8)) if one.name == "margins")
    assert picture.figure.axes[0].get_ylim() == pytest.approx((0, 1.05 * 0.01))


def test_the_sheet_shows_each_example_clean_changed_and_adversarial() -> None:
    figure = sheet(images(10), ("a", "b"))
    assert [axes.get_title() for axes in figure.axes if axes.axison][:9] == ["a"] * 8 + ["1"]
    assert sum(len(axes.images) for axes in figure.axes) == 30
    assert images(10).nearest(3).rows.tolist() == [9, 8, 7]


def test_the_curve_shows_proofs_as_far_as_they_were_looked_for(whole: Audit) -> None:
    easy = replace(whole, points={**whole.points, "certified": np.full(24, CONFIG.balls[-1].radius)})
    (proven,) = (line for line in curve(easy).figure.axes[0].lines if line.get_label() == "certified (lower bound)")
    assert set(proven.get_ydata()) == {100.0}
    largest = CONFIG.balls[-1].radius
    assert 0.98 * largest < max(proven.get_xdata()) <= largest, "beyond it nothing was searched"
