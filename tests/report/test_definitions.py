from widemargin.report.definitions import defined

MEANING = {"margin": "a 'distance' < 1", "median margin": "half of them"}


def test_the_first_of_each_term_carries_its_definition_and_all_is_escaped() -> None:
    html = defined("margin & margin, median margin <b>", MEANING)
    assert html.count("<dfn") == 2
    assert html.count("margin: a &#x27;distance&#x27; &lt; 1") == 2, "shown, and read aloud"
    assert html.endswith("</dfn> &lt;b&gt;")
    assert "</dfn> &amp; margin, <dfn" in html


def test_a_part_of_a_word_is_no_term() -> None:
    assert defined("margins, sub-margin <", MEANING) == "margins, sub-margin &lt;"
    assert defined("margin <", {}) == "margin &lt;"
