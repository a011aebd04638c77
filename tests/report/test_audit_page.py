import io
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import rich.console

from small_audits import CONFIG
from widemargin.auditing.adversarial import npz
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.result import Adversarial, Audit
from widemargin.measure.diagnostics.finding import Finding, Verdict
from widemargin.perturb.balls import OPEN, Linf
from widemargin.perturb.categories import CategoryChanges
from widemargin.report.audit_page import _class_name, page, sheet
from widemargin.report.document import Remark

pytestmark = pytest.mark.usefixtures("one_thread")
WORDS = {"": ("widemargin", "audit", "my run"), "--eps": ("0.1", "0.2"), "--budget": ("1m",)}


def audit(**other: object) -> Audit:
    """Of ten points two are misclassified, and three, two and three are broken first by one attack each."""
    points = {
        "row": np.arange(10),
        "label": np.zeros(10, dtype=int),
        "answer": np.array([1, 1, *[0] * 8]),
        "breaks": np.array([0, 0, 0, 0, 0, 1, 1, 2, 2, 2]),
        "by": np.array([-1, -1, 1, 1, 1, 0, 0, -1, -1, -1]),
        "margin": np.array([0, 0, 0.05, 0.05, 0.05, 0.15, 0.15, 0.3, 0.3, 0.3]),
        "certified": np.array([0, 0, 0, 0, 0, 0.1, 0.1, 0.15, 0.2, 0.2]),
    }
    found = Audit(
        name="<net>",
        data="digits",
        classes=("a", "b"),
        config=AuditConfig((Linf(0.1), Linf(0.2)), 10),
        attacks=("apgd-ce", "minimum-norm"),
        points=points,
        findings=(),
        asked=10,
        draws=None,
        notes=(),
        seconds=1.0,
    )
    return replace(found, **other)  # type: ignore[arg-type]


def finding(name: str, verdict: Verdict = "wrong", **numbers: float) -> Finding:
    return Finding(name, verdict, "so it <is>", "do this", numbers)


def certified(radii: list[float]) -> dict[str, dict[str, np.ndarray]]:
    return {"points": {**audit().points, "certified": np.array(radii)}}


@pytest.mark.parametrize(
    ("radii", "said"),
    [
        ([0, 0, 0, 0, 0, 0.1, 0.1, 0.15, 0.2, 0.2], "(attacks tried: minimum-norm, apgd-ce); proven for 20.0 %."),
        ([0, 0, 0, 0, 0, 0.1, 0.1, 0.2, 0.2, 0.2], "which is proven; under AutoAttack (attacks tried: "),
        ([np.nan] * 10, "(attacks tried: minimum-norm, apgd-ce); nothing is proven."),
    ],
)
def test_the_answer_comes_first(radii: list[float], said: str) -> None:
    report = page(audit(**certified(radii)))
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
        **audit().points,
        "breaks": np.full(10, 2),
        "answer": audit().points["label"],
        "certified": np.full(10, 0.2),
    }
    assert "up to 0.2 in linf, which is proven. Unchanged" in page(audit(points=points)).summary


def test_attacks_stand_in_the_order_in_which_they_went() -> None:
    (table,) = (table for table in page(audit()).tables if table.title == "Points broken by each attack")
    assert table.columns == ("attack", "run on", "broke of these", "linf 0.1", "linf 0.2")
    assert table.rows == (("minimum-norm", "8", "3", "3", "0"), ("apgd-ce", "not recorded", "2", "0", "2"))


def test_the_table_says_on_which_points_an_attack_was_run_and_what_is_known_of_it_alone() -> None:
    tried = np.array([0, 0, 0, 0, 0, 1, 1, 1, 0, 0])
    way = np.array([0, 0, 0.05, 0.05, 0.05, 0.2, np.inf, np.inf, np.inf, np.inf])
    (table,) = (
        table
        for table in page(audit(points={**audit().points, "tried": tried, "way": way})).tables
        if table.title == "Points broken by each attack"
    )
    assert [row[:3] for row in table.rows] == [("minimum-norm", "8", "3"), ("apgd-ce", "3", "2")]
    assert "not what it would break alone." in table.note
    assert "surrogate" not in table.note
    assert "what they break alone: 3 within 0.1, 4 within 0.2." in table.note


def unbroken(margins: list[float]) -> Audit:
    margin = np.array(margins)
    points = {
        **audit().points,
        "answer": np.where(margin == 0, 1, 0),
        "breaks": np.where(margin == 0, 0, 2),
        "by": np.full(10, -1),
        "margin": margin,
        "certified": np.full(10, np.nan),
    }
    return audit(points=points)


def test_the_picture_of_margins_draws_no_distance_that_is_not_known() -> None:
    """Before, points that no attack moved were drawn at the largest distance of the others, or at 0."""
    (picture,) = (one for one in page(unbroken([0.0] * 2 + [np.inf] * 8)).pictures if one.name == "margins")
    (panel,) = picture.figure.axes
    (line,) = panel.lines
    assert line.get_ydata().tolist() == [0.0, 0.0]  # type: ignore[union-attr]
    assert panel.get_ylim() == pytest.approx((0, 1.05 * 0.2))
    assert "no attack succeeded, at any distance" in panel.get_legend_handles_labels()[1]
    assert "margin is at most this; nothing is proven" in picture.caption
    assert "Of 8 points (shaded) no attack" in picture.caption
    (whole,) = (one for one in page(audit()).pictures if one.name == "margins")
    assert "shaded" not in whole.caption


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
    (remark,) = page(audit(findings=(found,)), WORDS).verdicts
    assert isinstance(remark, Remark)
    assert remark.command == command
    assert bool(remark.advice) == (found.verdict != "fine")
    assert "do this" not in remark.evidence
    (from_python,) = page(audit(findings=(found,))).verdicts
    assert from_python == replace(remark, command="")


def test_what_was_left_out_is_made_by_the_command_without_a_budget() -> None:
    report = page(audit(left_out=("gradients", "rising")), WORDS)
    (remark,) = report.verdicts
    assert isinstance(remark, Remark)
    assert remark.command == "widemargin audit 'my run' --eps 0.1 0.2"
    out = io.StringIO()
    report.print(rich.console.Console(file=out, width=200))
    assert remark.command in out.getvalue()


def test_findings_are_apart_and_escaped_and_calm_ones_are_folded_up() -> None:
    html = page(audit(findings=(finding("gradients"), finding("modes", "fine")))).html()
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
    page(audit(findings=findings)).print(rich.console.Console(file=out, width=200))
    assert "wrong: gradients\n  so it <is>" in out.getvalue()
    assert "2 diagnoses without a reason for doubt: modes, rising" in out.getvalue()


def test_the_page_needs_no_script_and_knows_the_dark() -> None:
    html = page(audit()).html()
    assert "<script" not in html
    assert "prefers-color-scheme:dark" in html
    assert html.count("<div class='scroll'") == html.count("<table>") + html.count("<img")
    assert "<dfn tabindex='0' data-means='linf: the largest change" in html


def images(count: int) -> Adversarial:
    rng = np.random.default_rng(0)
    before, after = rng.uniform(size=(2, count, 1, 4, 4))
    numbers = np.arange(count)
    zeros = np.zeros(count, dtype=int)
    return Adversarial("linf", numbers, before, after, zeros, zeros, zeros + 1, 1.0 - numbers / 100, numbers + 0.0)


def test_the_sheet_shows_each_example_clean_changed_and_adversarial() -> None:
    figure = sheet(images(10), ("a", "b"))
    assert [axes.get_title() for axes in figure.axes if axes.axison][:9] == ["a"] * 8 + ["1"]
    assert sum(len(axes.images) for axes in figure.axes) == 30
    assert images(10).nearest(3).rows.tolist() == [9, 8, 7]


def test_adversarial_examples_are_arrays_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "some.npz").write_bytes(npz(images(3)))
    with np.load(tmp_path / "some.npz") as stored:
        assert set(stored) == {
            "norm", "rows", "inputs", "adversarial", "labels", "predictions", "adversarial_predictions", "distance",
            "radius",
        }  # fmt: skip
        assert str(stored["norm"]) == "linf"
        assert np.array_equal(stored["adversarial"], images(3).adversarial)


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


def test_the_page_shows_proofs_as_far_as_they_were_looked_for(whole: Audit) -> None:
    easy = replace(whole, points={**whole.points, "certified": np.full(24, CONFIG.balls[-1].radius)})
    lead = page(easy).lead
    assert lead is not None
    (proven,) = (line for line in lead.figure.axes[0].lines if line.get_label() == "proven")
    assert set(proven.get_ydata()) == {100.0}
    largest = CONFIG.balls[-1].radius
    assert 0.98 * largest < max(proven.get_xdata()) <= largest, "beyond it nothing was searched"
    without = replace(whole, points={**whole.points, "certified": np.full(24, np.nan)})
    columns = [table.columns for table in page(without).tables if table.title == "Accuracy under AutoAttack"]
    assert columns == [("points moved within", "accuracy", "95 % interval")]
    assert len(next(table for table in page(easy).tables if table.title == "Accuracy under AutoAttack").columns) == 4


def test_a_class_may_be_called_anything(whole: Audit) -> None:
    image, zero = np.zeros((1, 1, 4, 4)), np.zeros(1, dtype=int)
    shown = Adversarial("l2", zero, image, image, zero, zero, zero, np.ones(1), np.ones(1))
    text = page(replace(whole, classes=(r"$\foo{$<b>", "b", "c", "d"), adversarial=shown)).html()
    assert "<b>" not in text


def test_a_class_that_the_data_have_not_is_called_by_its_number() -> None:
    assert [_class_name(("a", "b"), number) for number in (1, 2)] == ["b", "2"]


def test_changes_of_category_are_named() -> None:
    box = OPEN.holding((1, 2, 3))
    codes = np.zeros((10, 1), dtype=int)
    to = codes.copy()
    to[2:6] = 1
    way = np.array([0, 0, 0, 0.05, 0.05, 0.15, 0.15, 0.3, 0.3, 0.3])
    points = {**audit().points, "margin": way, "way": way, "changed_from": codes, "changed_to": to}
    found = audit(
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
