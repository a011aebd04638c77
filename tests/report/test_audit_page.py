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
        (
            [0, 0, 0, 0, 0, 0.1, 0.1, 0.15, 0.2, 0.2],
            "Certified accuracy is 20.0 %: true robust accuracy lies between the two.",
        ),
        ([0, 0, 0, 0, 0, 0.1, 0.1, 0.2, 0.2, 0.2], "Robust accuracy is exact on these examples"),
        ([np.nan] * 10, "There are no certificates: true robust accuracy may be lower."),
    ],
)
def test_the_answer_comes_first(radii: list[float], said: str) -> None:
    report = page(ten_points(**certified(radii)))
    assert report.summary.startswith(
        "Robust accuracy at eps = 0.2 in linf is 30.0 % [10.8, 60.3] on 10 test examples of digits, under AutoAttack "
        "(attacks: minimum-norm, apgd-ce). Clean accuracy is 80.0 %. "
    )
    assert said in report.summary
    html = report.html()
    order = [html.index(one) for one in ("class='answer'", "<figure>", "<table>")]
    assert order == sorted(order)


@pytest.mark.parametrize("certified", [0.0, np.nan])
def test_where_nothing_is_robust_one_sentence_says_so(certified: float) -> None:
    """Before, it said of 0 % that they were proven, and the others were not."""
    points = {**ten_points().points, "certified": np.full(10, certified)}
    all_broken = page(ten_points(points={**points, "breaks": np.minimum(points["breaks"], 1)})).summary
    assert "is 0.0 % [0.0, 27.8]" in all_broken
    assert "No example is robust at this eps: the attacks broke every one that is classified" in all_broken
    wrong = {**points, "breaks": np.full(10, 0), "answer": 1 - points["label"]}
    assert "No example is classified correctly, so none is robust." in page(ten_points(points=wrong)).summary
    assert "certif" not in all_broken


@pytest.mark.parametrize("margins", [[np.inf] * 10, [0.0] * 10, [0.1] * 9 + [np.inf]])
def test_a_page_can_be_made_whatever_was_broken(margins: list[float]) -> None:
    report = page(unbroken(margins))
    assert report.html()
    (table,) = (table for table in report.tables if table.title == "Margins")
    assert not [cell for row in table.rows for cell in row if "inf" in cell or "nan" in cell]
    assert ("no attack found an adversarial example" in table.note) == (np.inf in margins)
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
    assert "1 diagnosis is fine" in calm
    assert html.index("<h2>Findings</h2>") < html.index("<h2>Details</h2>") < html.index("<table>")


def test_the_terminal_names_calm_findings_in_one_line() -> None:
    out = io.StringIO()
    findings = (finding("gradients"), finding("modes", "fine"), finding("rising", "fine"))
    page(ten_points(findings=findings)).print(rich.console.Console(file=out, width=200))
    assert "wrong: gradients\n  so it <is>" in out.getvalue()
    assert "2 diagnoses are fine: modes, rising" in out.getvalue()


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
        "Successes of each attack",
        "Margins",
        "Accuracy by class, clean and under AutoAttack",
        "certified radius (lower)",
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
    assert "at eps = 0.2 in linf with changes of colour is" in shown.summary
    assert "under AutoAttack (attacks: change of category, " in shown.summary
    assert "with age is missing held fixed, changes of category (colour) counted apart" in shown.settings
    tables = {table.title: table for table in shown.tables}
    # Two are misclassified, and one is broken by its category alone.
    assert tables["Accuracy under AutoAttack"].rows[1][:2] == ("change of category", "70.0 %")
    changes = tables["Changes of category in the nearest adversarial examples within linf 0.2"]
    assert changes.rows == (("colour: red -> blue", "4"),)
    nearest = tables["Smallest perturbations with a change of category"].rows
    assert nearest[0] == ("2", "a", "colour: red -> blue", "0")
    assert shown.html()
