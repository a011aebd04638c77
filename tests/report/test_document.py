import io
import re
from pathlib import Path

import pytest
import rich.console

from widemargin.report.document import Picture, Remark, Report, Verdict, counted
from widemargin.report.figures import panels
from widemargin.report.tables import Table, mean_std


def report() -> Report:
    figure, axes = panels(1, 2)
    axes[0][0].plot([0, 1], [1, 0])
    return Report(
        "Title & more",
        "What was asked?",
        "Seeds 0..4.",
        (
            Verdict("UDP <stops> at E[w].", "held", "0 of 66"),
            Verdict("TRADES fails.", "not held", "0 errors", printed="held"),
            Verdict("Nobody knows.", "undecided", "1 of 2"),
        ),
        (Table("Margins", ("method", "worst"), (("udp", "0.83 ± 0.05"),), "Note."),),
        (Picture("fig", figure, "A 'quoted' caption"),),
    )


def test_the_page_is_self_contained_and_escaped(tmp_path: Path) -> None:
    paths = report().write(tmp_path)
    assert [path.name for path in paths] == ["fig.png", "report.md", "page.html"]
    page = (tmp_path / "page.html").read_text()
    assert re.findall(r"src='(.{22})", page) == ["data:image/png;base64,"]
    assert not re.search(r"(href|src)=['\"]http", page)
    assert "Title &amp; more" in page
    assert "UDP &lt;stops&gt; at E[w]." in page
    assert page.count("class='good'") == page.count("class='bad'") == page.count("class='doubtful'") == 1


def test_markdown_and_terminal_say_the_same(tmp_path: Path) -> None:
    out = io.StringIO()
    report().print(rich.console.Console(file=out, width=120))
    report().write(tmp_path)
    for text in (out.getvalue(), (tmp_path / "report.md").read_text()):
        for words in (
            "Title & more",
            "0.83 ± 0.05",
            "not held (the paper's own numbers: held)",
            "undecided",
            "TRADES fails.",
            "0 of 66",
            "E[w]",
        ):
            assert words in text


def test_advice_is_given_once(tmp_path: Path) -> None:
    remarks = [Remark(name, "suspicious", "doubtful", "3.0% of 200 points", "Audit again.", "x") for name in "ab"]
    Report("T", "s", "s", (*remarks, Remark("c", "fine", "good", "5.0%"))).write(tmp_path)
    for text in ((tmp_path / "report.md").read_text(), (tmp_path / "page.html").read_text()):
        assert text.count("Audit again.") == 1
        assert "As for a, above." in text
        assert text.count("6 of 200 points") == 2
        assert "5.0 %" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("break 1.00% of 100 points that", "break 1 of 100 points that"),
        ("0.0% of 37 answers", "0 of 37 answers"),
        ("12.3% of 2000 points", "12.3 % of 2000 points"),
        ("50 % and 3.0%", "50 % and 3.0 %"),
    ],
)
def test_few_points_are_counted(text: str, shown: str) -> None:
    assert counted(text) == shown


def test_mean_and_sample_deviation() -> None:
    assert mean_std([1.0, 2.0, 3.0]) == "2.00 ± 1.00"
    assert mean_std([0.5], 1) == "0.5 ± 0.0"
