from dataclasses import replace
from pathlib import Path

import pytest

from widemargin.files import read_json, write_json
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
    assert "Seed 0.\n\n`widemargin" in text
    whole = page("# All\n", ["some", "some"], tmp_path)
    assert whole.startswith("# All\n\n**Claims**\n\n| study | held | not held | undecided |\n")
    assert "| `some` | 1 | 0 | 0 |" in whole
    assert whole.count("## A study") == 2
    assert page("# All\n", ["some", "other", "third"], tmp_path).endswith("No results are kept of `other`, `third`.\n")


def test_facts_are_kept_and_hardware_is_that_of_the_run(tmp_path: Path) -> None:
    keep(replace(REPORT, facts={"hardware": "an abacus", "seeds": [0], "n": 100}), "some", tmp_path)
    content = read_json(tmp_path / "some.json")
    assert content["hardware"] == "an abacus"
    assert content["facts"] == {"seeds": [0], "n": 100}
    assert content["commands"] == ["widemargin study run some", "widemargin study report some"]
    assert "an abacus" in section("some", tmp_path)


def test_old_results_are_not_counted(tmp_path: Path) -> None:
    path = keep(REPORT, "old", tmp_path)
    write_json(path, {name: value for name, value in read_json(path).items() if name != "facts"})
    whole = page("# All\n", ["old"], tmp_path)
    assert "| `old` | - | - | - |" in whole
    assert "to be run again" in whole


def test_what_is_missing_or_was_changed_is_not_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^there is no result of some in .*: `widemargin study report some --keep"):
        section("some", tmp_path)
    path = keep(REPORT, "some", tmp_path)
    path.write_text(path.read_text().replace("1.0", "9.0"))
    with pytest.raises(ValueError, match=r"is damaged .its checksum differs.: report the study again"):
        section("some", tmp_path)
