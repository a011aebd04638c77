from dataclasses import replace
from pathlib import Path

import pytest

from widemargin.files import read_json
from widemargin.report.document import Remark, Report
from widemargin.report.results import keep, page, section
from widemargin.report.tables import Table

REPORT = Report(
    "A study",
    "Does it?",
    "Seed 0.",
    (Remark("It does.", "held", "good", "1 of 1"),),
    (Table("Numbers", ("method", "a|b"), (("udp", "1.0"), ("pgd", "2.0")), "In percent.", frozenset({(1, 1)})),),
)


def test_a_kept_result_says_what_the_report_said(tmp_path: Path) -> None:
    keep(REPORT, "some", tmp_path)
    text = section("some", tmp_path)
    assert text.startswith("## A study (`some`)\n\nDoes it?\n\n- **held**: It does.  \n  1 of 1\n\n")
    assert REPORT.tables[0].markdown() in text
    assert "`widemargin study run some`" in text
    (tmp_path / "some.md").write_text("One seed only.\n")
    assert "Seed 0.\n\nOne seed only.\n\n`widemargin" in section("some", tmp_path)
    whole = page("# All\n", ["some", "some"], tmp_path)
    assert whole.startswith("# All\n\n## A study")
    assert whole.count("## A study") == 2


def test_facts_are_kept_and_hardware_is_that_of_the_run(tmp_path: Path) -> None:
    keep(replace(REPORT, facts={"hardware": "an abacus", "seeds": [0], "n": 100}), "some", tmp_path)
    content = read_json(tmp_path / "some.json")
    assert content["hardware"] == "an abacus"
    assert content["facts"] == {"seeds": [0], "n": 100}
    assert content["commands"] == ["widemargin study run some", "widemargin study report some"]
    assert "an abacus" in section("some", tmp_path)


def test_what_is_missing_or_was_changed_is_not_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^there is no result of some in .*: `widemargin study report some --keep"):
        section("some", tmp_path)
    path = keep(REPORT, "some", tmp_path)
    path.write_text(path.read_text().replace("1.0", "9.0"))
    with pytest.raises(ValueError, match=r"is damaged .its checksum differs.: report the study again"):
        section("some", tmp_path)
