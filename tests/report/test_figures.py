import numpy as np
import pytest

from widemargin.measure.calibration import reliability
from widemargin.report.figures import bin_edges, draw_reliability, panels


def test_the_reliability_diagram_shows_every_bin_that_holds_answers() -> None:
    found = reliability(np.array([0.9, 0.9, 0.6]), np.array([True, False, True]), bins=5)
    figure, axes = panels(1, 1)
    draw_reliability(axes[0][0], found)
    assert [text.get_text() for text in axes[0][0].texts] == ["1", "2"]
    assert [bar.get_height() for bar in axes[0][0].patches] == [1.0, 0.5]
    figure.canvas.draw()


def test_equal_values_have_a_histogram_too() -> None:
    edges = bin_edges(np.array([0.3, 0.3 + 1e-16]), 4)
    assert (len(edges), edges[0], edges[-1]) == (5, pytest.approx(-0.2), pytest.approx(0.8))
    assert bin_edges(np.array([0.0, 2.0]), 2) == [0.0, 1.0, 2.0]
