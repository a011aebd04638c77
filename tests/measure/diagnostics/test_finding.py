from widemargin.measure.diagnostics.finding import failed_finding, graded, sentence_of, worst_of


def test_a_share_is_graded_by_two_limits() -> None:
    assert [graded(value, (0.01, 0.1)) for value in (0.01, 0.02, 0.1, 0.2)] == ["fine", *["suspicious"] * 2, "wrong"]
    assert worst_of("fine", "wrong", "suspicious") == "wrong"
    assert worst_of("fine", "suspicious") == "suspicious"


def test_whatever_is_raised_is_one_short_line() -> None:
    assert sentence_of(ValueError("a\nb")) == "a b"
    assert sentence_of(KeyError("k")) == "KeyError: 'k'"
    assert sentence_of(ValueError()) == "ValueError: "
    assert len(sentence_of(RuntimeError("x" * 1000))) == 303


def test_what_failed_is_suspicious_and_says_what_follows() -> None:
    finding = failed_finding("square", "out of memory", "it broke no point")
    assert (finding.verdict, finding.evidence) == ("suspicious", "it failed, so it broke no point: out of memory")
    assert finding.advice
