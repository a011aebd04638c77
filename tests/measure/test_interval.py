import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from widemargin.measure.interval import wilson


@given(n=st.integers(1, 20_000), part=st.floats(0, 1), level=st.floats(0.5, 0.999))
def test_bounds_are_those_of_scipy(n: int, part: float, level: float) -> None:
    counted = wilson(round(part * n), n, level)
    known = binomtest(round(part * n), n).proportion_ci(level, method="wilson")
    assert (counted.low, counted.high) == pytest.approx((known.low, known.high), abs=1e-12)
    assert 0 <= counted.low <= counted.fraction <= counted.high <= 1


def test_a_thousand_points_at_a_half_are_three_points_wide() -> None:
    assert str(wilson(500, 1000)) == "0.5000 [0.4691, 0.5309] (n = 1000)"
    assert (wilson(0, 10).low, wilson(10, 10).high) == (0, 1)


@pytest.mark.parametrize(
    ("count", "n", "level", "message"),
    [
        (-1, 5, 0.95, "count must be in 0..n and n at least 1, got -1 of 5"),
        (6, 5, 0.95, "count must be in 0..n and n at least 1, got 6 of 5"),
        (0, 0, 0.95, "count must be in 0..n and n at least 1, got 0 of 0"),
        (1, 5, 1.0, r"level must be in \(0, 1\), got 1.0"),
    ],
)
def test_what_is_no_share_is_refused(count: int, n: int, level: float, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        wilson(count, n, level)
