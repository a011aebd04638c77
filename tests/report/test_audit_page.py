import io
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import rich.console

from small_audits import ten_points, unbroken
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.result import Adversarial, Audit
from widemargin.measure.diagnostics.finding import Finding, Verdict
from widemargin.perturb.balls import OPEN, Linf
from widemargin.perturb.categories import CategoryChanges
from widemargin.report.audit_page import page
from widemargin.report.document import Remark

pytestmark = pytest.mark.usefixtures("one_thread")
WORDS = {"": ("widemargin", "audit", "my run"), "--eps": ("0.1", "0.2"), "--budget": ("1m",)}


def finding(name: str, verdict: Verdict = "wrong", **numbers: float) -> Finding:
    return Finding(name, verdict, "so it <is>", "do this", numbers)


def certified(radii: list[float]) -> dict[str, dict[str, np.ndarray]]:
    return {"points": {**ten_points().points, "certified": np.array(radii)}}


@pytest.mark.parametrize(
    ("radii", "said"),
    [
        ([0, 0, 0, 0, 0, 0.1, 0.1, 0.15, 0.2, 0.2], "(attacks tried: minimum-norm, apgd-ce); proven for 20.0 %."),
        ([0, 0, 0, 0, 0, 0.1, 0.1, 0.2, 0.2, 0.2], "which is proven; under AutoAttack (attacks tried: "),
        ([np.nan] * 10, "(attacks tried: minimum-norm, apgd-ce); nothing is proven."),
    ],
)
def test_the_answer_comes_first(radii: list[float], said: str) -> None:
    report = page(ten_points(**certified(radii)))
    assert report.summary.startswith(
        "Of 10 test examples of digits, 30.0 % [10.8, 60.3] are still classified correctly however they are changed by "
        "up to 0.2 in linf, "
    )
    assert said in report.summary
    assert "Unchanged, 80.0 % are." in report.summary
    html = report.html()
    order = [html.index(one) for one in ("class='answer'", "<figure>", "<table>")]
    assert order == sorted(order)


def test_where_all_is_proven_nothing_is_said_of_others() -> None:
    points = {
        **ten_points().points,
        "breaks": np.full(10, 2),
        "answer": ten_points().points["label"],
        "certified": np.full(10, 0.2),
    }
    assert "up to 0.2 in linf, which is proven. Unchanged" in page(ten_points(points=points)).summary


@pytest.mark.parametrize("margins", [[np.inf] * 10, [0.0] * 10, [0.1] * 9 + [np.inf]])
def test_a_page_can_be_made_whatever_was_broken(margins: list[float]) -> None:
    report = page(unbroken(margins))
    assert report.html()
    (table,) = (table for table in report.tables if table.title == "Margins")
    assert not [cell for row in table.rows for cell in row if "inf" in cell or "nan" in cell]
    assert ("no attack found a place of another class" in table.note) == (np.inf in margins)
    by_class = report.tables[-1]
    assert not [cell for row in by_class.rows for cell in row if "inf" in cell]


@pytest.mark.parametrize(
    ("found", "command"),
    [
        (finding("black box"), "widemargin audit 'my run' --eps 0.1 0.2 0.4 0.8 --budget 1m"),
        (
            finding("inputs in box", lowest=-1.0, highest=255.0),
            "widemargin audit 'my run' --eps 0.1 0.2 --budget 1m --box -1.0 255.0",
        ),
        (finding("modes"), ""),
        (finding("gradients", "fine"), ""),
    ],
)
def test_advice_is_a_command(found: Finding, command: str) -> None:
    (remark,) = page(ten_points(findings=(found,)), WORDS).verdicts
    assert isinstance(remark, Remark)
    assert remark.command == command
    assert bool(remark.advice) == (found.verdict != "fine")
    assert "do this" not in remark.evidence
    (from_python,) = page(ten_points(findings=(found,))).verdicts
    assert from_python == replace(remark, command="")


def test_what_was_left_out_is_made_by_the_command_without_a_budget() -> None:
    report = page(ten_points(left_out=("gradients", "rising")), WORDS)
    (remark,) = report.verdicts
    assert isinstance(remark, Remark)
    assert remark.command == "widemargin audit 'my run' --eps 0.1 0.2"
    out = io.StringIO()
    report.print(rich.console.Console(file=out, width=200))
    assert remark.command in out.getvalue()


def test_findings_are_apart_and_escaped_and_calm_ones_are_folded_up() -> None:
    html = page(ten_points(findings=(finding("gradients"), finding("modes", "fine")))).html()
    assert "<net>" not in html
    assert "so it &lt;is&gt;" in html
    loud, calm = html.split("<details>")
    assert "wrong</span>" in loud
    assert "fine</span>" in calm
    assert "1 diagnosis without a reason for doubt" in calm
    assert html.index("<h2>Findings</h2>") < html.index("<h2>Details</h2>") < html.index("<table>")


def test_the_terminal_names_calm_findings_in_one_line() -> None:
    out = io.StringIO()
    findings = (finding("gradients"), finding("modes", "fine"), finding("rising", "fine"))
    page(ten_points(findings=findings)).print(rich.console.Console(file=out, width=200))
    assert "wrong: gradients\n  so it <is>" in out.getvalue()
    assert "2 diagnoses without a reason for doubt: modes, rising" in out.getvalue()


def test_the_page_needs_no_script_and_knows_the_dark() -> None:
    html = page(ten_points()).html()
    assert "<script" not in html
    assert "prefers-color-scheme:dark" in html
    assert html.count("<div class='scroll'") == html.count("<table>") + html.count("<img")
    assert "<dfn tabindex='0' data-means='linf: the largest change" in html


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.images = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.images += tag == "img"

    def handle_data(self, data: str) -> None:
        self.cells.append(data.strip())


def test_the_page_has_every_part(whole: Audit) -> None:
    found = whole
    texts = _Texts()
    texts.feed(page(found).html())
    for words in (
        "Accuracy under AutoAttack",
        "Points broken by each attack",
        "Margins",
        "Class by class, clean and under AutoAttack",
        "proven lower bound",
    ):
        assert words in " ".join(texts.cells)
    assert f"{100 * found.robust[0].fraction:.1f} %" in texts.cells
    # Points that are no images have no pictures of themselves.
    assert texts.images == 2


def test_a_class_may_be_called_anything(whole: Audit) -> None:
    image, zero = np.zeros((1, 1, 4, 4)), np.zeros(1, dtype=int)
    shown = Adversarial("l2", zero, image, image, zero, zero, zero, np.ones(1), np.ones(1))
    text = page(replace(whole, classes=(r"$\foo{$<b>", "b", "c", "d"), adversarial=shown)).html()
    assert "<b>" not in text


def test_changes_of_category_are_named() -> None:
    box = OPEN.holding((1, 2, 3))
    codes = np.zeros((10, 1), dtype=int)
    to = codes.copy()
    to[2:6] = 1
    way = np.array([0, 0, 0, 0.05, 0.05, 0.15, 0.15, 0.3, 0.3, 0.3])
    points = {**ten_points().points, "margin": way, "way": way, "changed_from": codes, "changed_to": to}
    found = ten_points(
        config=AuditConfig((Linf(0.1, box), Linf(0.2, box)), 10, categories=CategoryChanges(((1, 2),))),
        attacks=("apgd-ce", "minimum-norm", "change of category"),
        points=points,
        features=("size", "colour=red", "colour=blue", "age is missing"),
        categories=(("colour", ("red", "blue")),),
    )
    shown = page(found)
    assert "changed by up to 0.2 in linf and in colour, under AutoAttack (attacks tried: change of category, " in (
        shown.summary
    )
    assert "with age is missing held fixed, changes of category (colour) counted apart" in shown.settings
    tables = {table.title: table for table in shown.tables}
    # Two are misclassified, and one is broken by its category alone.
    assert tables["Accuracy under AutoAttack"].rows[1][:2] == ("a change of category", "70.0 %")
    changes = tables["Changes of category at the nearest wrong place within linf 0.2"]
    assert changes.rows == (("colour: red -> blue", "4"),)
    nearest = tables["Points that a changed category brings nearest to another class"].rows
    assert nearest[0] == ("2", "a", "colour: red -> blue", "0")
    assert shown.html()
