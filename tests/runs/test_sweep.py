from widemargin.runs.sweep import Range


def test_values_are_rounded_within_the_range() -> None:
    assert Range(0.1, 0.5).rounded(0.123456) == 0.1235
    assert Range(0.12344, 0.5).rounded(0.12344) == 0.12344
    assert Range(1, 9, whole=True).rounded(3.0) == 3
