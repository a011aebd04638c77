import math

import pytest
from scipy.stats import t

from widemargin.report.verdicts import (
    Estimate,
    Outcome,
    accuracy_of,
    all_of,
    difference,
    exactly,
    greater,
    in_most_seeds,
    mean_of,
    mean_of_two,
    most_of,
    reported,
    scaled,
    smaller,
    student,
    trade_off,
)


def test_the_factor_is_students() -> None:
    for count in range(2, 300):
        assert student(count) == pytest.approx(t.ppf(0.975, count - 1), rel=2e-3)


def test_a_mean_over_seeds_has_students_bounds_and_one_seed_has_none() -> None:
    found = mean_of([1.0, 2.0, 3.0])
    low, high = t.interval(0.95, 2, 2.0, 1 / math.sqrt(3))
    assert (found.value, found.low, found.high) == pytest.approx((2.0, low, high), rel=1e-3)
    assert mean_of([0.7]) == Estimate(0.7, -math.inf, math.inf)


def test_an_accuracy_has_the_wider_bounds_of_points_and_seeds() -> None:
    alone = accuracy_of([0.6], 100)
    assert 0.49 < alone.low < 0.51
    assert 0.68 < alone.high < 0.70
    # Seeds that agree do not make the points more.
    assert accuracy_of([0.6, 0.6, 0.6], 100) == alone
    apart = accuracy_of([0.4, 0.6, 0.8], 10_000)
    assert apart.low < 0.2
    assert apart.high == 1.0


def test_the_mean_of_two_is_surer_than_each() -> None:
    found = mean_of_two(Estimate(0.8, 0.7, 0.9), Estimate(0.4, 0.3, 0.5))
    assert found.value == pytest.approx(0.6)
    assert found.high - found.value == pytest.approx(math.hypot(0.1, 0.1) / 2)
    assert found.value - found.low == pytest.approx(math.hypot(0.1, 0.1) / 2)


def test_a_trade_off_has_the_wider_bounds_of_points_and_seeds() -> None:
    alone = trade_off([0.8], [0.4], 100, 100)
    assert alone == mean_of_two(accuracy_of([0.8], 100), accuracy_of([0.4], 100))
    # What one loses the other gains: seeds agree on the mean.
    same = trade_off([0.8, 0.6], [0.4, 0.6], 100, 100)
    assert (same.value, same.high) == pytest.approx((0.6, trade_off([0.7], [0.5], 100, 100).high))
    assert trade_off([0.8, 0.6], [0.4, 0.3], 100, 100).low < 0.1


def test_what_others_print_has_the_same_bounds() -> None:
    assert reported(0.6, None, 3, 100) == accuracy_of([0.6], 100)
    shares = [0.5, 0.6, 0.7]
    found, wanted = reported(0.6, 0.1, 3, 10_000), accuracy_of(shares, 10_000)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))


def test_scaled_and_smaller() -> None:
    one = scaled(Estimate(0.4, 0.2, 0.6), 0.5)
    assert one == Estimate(0.2, 0.1, 0.3)
    assert (smaller(one, 0.4), smaller(one, 0.25), smaller(one, 0.05)) == ("held", "undecided", "not held")
    assert one.percent == "20.0 [10.0, 30.0] %"


def test_a_difference_has_newcombes_bounds() -> None:
    """His first example: 56 of 70 against 48 of 80, .2 between .0524 and .3339."""
    found = difference(accuracy_of([56 / 70], 70), accuracy_of([48 / 80], 80))
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)


@pytest.mark.parametrize(
    ("one", "two", "outcome"),
    [(0.9, 0.5, "held"), (0.5, 0.9, "not held"), (0.52, 0.5, "undecided"), (0.5, 0.5, "undecided")],
)
def test_greater_knows_that_it_does_not_know(one: float, two: float, outcome: Outcome) -> None:
    assert greater(accuracy_of([one], 100), accuracy_of([two], 100)) == outcome


def test_one_seed_without_points_decides_nothing() -> None:
    assert greater(mean_of([5.0]), 1.0) == "undecided"
    assert greater(mean_of([5.0, 5.1, 4.9]), 1.0) == "held"


@pytest.mark.parametrize(
    ("times", "outcome"), [(10, "held"), (9, "held"), (6, "undecided"), (3, "undecided"), (0, "not held")]
)
def test_most_seeds(times: int, outcome: Outcome) -> None:
    assert in_most_seeds([number < times for number in range(10)]) == outcome


def test_one_seed_of_one_is_undecided() -> None:
    assert in_most_seeds([True]) == in_most_seeds([False]) == "undecided"


def test_joined_outcomes() -> None:
    assert all_of(["held", "held"]) == "held"
    assert all_of(["held", "undecided"]) == "undecided"
    assert all_of(["undecided", "not held"]) == "not held"
    assert most_of(["held", "held", "not held"]) == "held"
    assert most_of(["held", "held", "not held", "not held"]) == "not held"
    assert most_of(["held", "undecided", "not held"]) == "undecided"
    assert (exactly(True), exactly(False)) == ("held", "not held")


def test_an_estimate_lies_between_its_bounds() -> None:
    with pytest.raises(ValueError, match="between its bounds"):
        Estimate(1.0, 2.0, 3.0)
