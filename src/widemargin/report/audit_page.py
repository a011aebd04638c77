"""The page of an audit: its figures as tables and pictures; no network is run."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from widemargin.auditing.result import Audit
from widemargin.data.limits import listed
from widemargin.measure.diagnostics import Finding
from widemargin.report.document import Picture, Remark, Report, Tone
from widemargin.report.figures import COLOURS, Array, bare, panels
from widemargin.report.tables import Table, radius_text

SHOWN = 8
"""Adversarial examples in a picture."""
_TONES: dict[str, Tone] = {"fine": "good", "suspicious": "doubtful", "wrong": "bad"}


def page(audit: Audit) -> Report:
    if not audit.attacks:
        return _unattacked(audit)
    left = "" if audit.n == audit.asked else f", the {audit.n:,} of {audit.asked:,} points for which there was time"
    largest, robust = audit.question.balls[-1], audit.robust[-1]
    summary = (
        f"{audit.name} on {audit.data}: {_percent(audit.clean.fraction)} of {audit.n:,} test points are classified "
        f"correctly, and {_percent(robust.fraction)} [{100 * robust.low:.1f}, {100 * robust.high:.1f}] under "
        f"{_autoattack(audit)} within {audit.norm} {radius_text(largest.radius)}{left}. {_warnings(audit)}"
    )
    settings = (
        f"Attacks: {', '.join(audit.led)}, in turn, each on the points that stand; margins by minimum-norm attacks "
        f"and by those; box {_box(audit)}; seed {audit.question.seed}; points drawn at random from the test part; "
        f"95 % Wilson intervals; {audit.seconds:,.0f} s. {' '.join((*_drawn(audit), *audit.notes))}"
    )
    pictures = [_curve(audit), _margins(audit), *_examples(audit)]
    tables = (_accuracy(audit), _by_attack(audit), _distribution(audit), _by_class(audit))
    return Report(f"Audit of {audit.name}", summary, settings, _remarks(audit), tables, tuple(pictures))


def _autoattack(audit: Audit) -> str:
    """An attack that failed is none of it."""
    missing = [name for name in audit.attacks if name in audit.failed]
    return f"AutoAttack without {', '.join(missing)}" if missing else "AutoAttack"


def _unattacked(audit: Audit) -> Report:
    """What is left where attacks would make no sense."""
    summary = (
        f"{audit.too_short} {audit.name} on {audit.data}: {_percent(audit.clean.fraction)} of {audit.n:,} test points "
        "are classified correctly. Nothing was attacked, so nothing is known of its robustness."
    ).lstrip()
    return Report(f"Audit of {audit.name}", summary, " ".join(audit.notes), _remarks(audit), (), ())


def _drawn(audit: Audit) -> tuple[str, ...]:
    if audit.draws is None:
        return ()
    return (
        f"The answers are drawn: attacks climb the mean over {audit.draws.attack} draws, and a point is "
        f"misclassified only by the mean prediction over {audit.draws.verification} other draws, the same for all.",
    )


def _warnings(audit: Audit) -> str:
    warnings = [finding.name for finding in audit.findings if finding.verdict != "fine"]
    if warnings:
        return f"Before you trust these numbers, read what is said below of: {', '.join(warnings)}."
    made, of = _diagnoses(audit)
    some = f"{made} diagnoses" if made == of else f"the {made} diagnoses, of {of}, for which there was time"
    return f"None of {some} gives a reason to doubt these numbers."


def _diagnoses(audit: Audit) -> tuple[int, int]:
    """How many were made, and of how many."""
    return len(audit.findings), len(audit.findings) + len(audit.left_out)


def _remarks(audit: Audit) -> tuple[Remark, ...]:
    worst_first = sorted(audit.findings, key=lambda finding: list(_TONES).index(finding.verdict), reverse=True)
    remarks = tuple(
        Remark(
            finding.name,
            finding.verdict,
            _TONES[finding.verdict],
            _evidence(audit, finding),
        )
        for finding in worst_first
    )
    if not audit.left_out:
        return remarks
    made, of = _diagnoses(audit)
    evidence = f"the time was up; nothing is known of: {', '.join(audit.left_out)}"
    return (Remark(f"only {made} of {of} diagnoses were made", "incomplete", "doubtful", evidence), *remarks)


def _evidence(audit: Audit, finding: Finding) -> str:
    evidence = finding.evidence if finding.verdict == "fine" else f"{finding.evidence}. To do: {finding.advice}."
    return evidence.replace(repr(audit.question.balls[0].box), _box(audit))


def _box(audit: Audit) -> str:
    """A page has no room for an interval of every feature."""
    box = audit.question.balls[0].box
    held = f", with {listed(audit.fixed)} held fixed" if box.fixed else ""
    if isinstance(box.low, tuple):
        return f"of {len(box.low)} intervals, as in audit.json{held}"
    return f"{box.holding(())!r}{held}"


def _accuracy(audit: Audit) -> Table:
    columns = ["points moved within", "accuracy", "95 % interval"]
    rows = [["nothing (clean)", _percent(audit.clean.fraction), _interval(audit.clean.low, audit.clean.high)]]
    for ball, robust in zip(audit.question.balls, audit.robust, strict=True):
        rows.append(
            [f"{audit.norm} {radius_text(ball.radius)}", _percent(robust.fraction), _interval(robust.low, robust.high)]
        )
    if audit.certified is not None:
        columns.append("certified")
        proven = ("", *(_percent(one.fraction) for one in audit.certified))
        rows = [[*row, share] for row, share in zip(rows, proven, strict=True)]
    return Table(f"Accuracy under {_autoattack(audit)}", tuple(columns), tuple(map(tuple, rows)))


def _by_attack(audit: Audit) -> Table:
    radii = tuple(f"{audit.norm} {radius_text(ball.radius)}" for ball in audit.question.balls)
    rows = tuple((name, *map(str, counts)) for name, counts in audit.broken_by.items())
    note = "Each point counts once: in the smallest ball in which it is misclassified, for the attack that showed it."
    return Table("Points broken by each attack", ("attack", *radii), rows, note)


def _distribution(audit: Audit) -> Table:
    margin = audit.points["margin"]
    shares = (0.05, 0.25, 0.5, 0.75, 0.95)
    values = [f"{value:.4g}" for value in np.quantile(margin, shares, method="inverted_cdf")]
    columns = ("", "misclassified", "least", *(f"{100 * share:g} %" for share in shares), "mean, if correct")
    right = margin[margin > 0]
    mean = f"{right[np.isfinite(right)].mean():.4g}" if np.isfinite(right).any() else "none"
    wrong = _percent(float((margin == 0).mean()))
    rows = [("smallest known distance to another class", wrong, f"{margin.min():.4g}", *values, mean)]
    certified = audit.points["certified"]
    if not np.isnan(certified).any():
        lower = [f"{value:.4g}" for value in np.quantile(certified, shares, method="inverted_cdf")]
        of_right = certified[margin > 0]
        rows.append(
            (
                "proven lower bound",
                wrong,
                f"{certified.min():.4g}",
                *lower,
                f"{of_right.mean():.4g}" if len(of_right) else "",
            )
        )
    largest = audit.question.balls[-1].radius
    note = f"In {audit.norm}; misclassified points count with 0"
    note += f"; lower bounds were looked for up to {largest:g} only." if len(rows) > 1 else "."
    return Table("Margins", columns, tuple(rows), note)


def _by_class(audit: Audit) -> Table:
    labels, breaks = audit.points["label"], audit.points["breaks"]
    rows = []
    for number, name in enumerate(audit.classes):
        is_of_class = labels == number
        if not is_of_class.any():
            continue
        robust = [_percent(float((breaks[is_of_class] > i).mean())) for i in range(len(audit.question.balls))]
        median = np.quantile(audit.points["margin"][is_of_class], 0.5, method="inverted_cdf")
        rows.append(
            (
                name,
                str(int(is_of_class.sum())),
                _percent(float(audit.right[is_of_class].mean())),
                *robust,
                f"{median:.4g}",
            )
        )
    radii = (f"{audit.norm} {radius_text(ball.radius)}" for ball in audit.question.balls)
    return Table(
        f"Class by class, clean and under {_autoattack(audit)}",
        ("class", "points", "clean", *radii, "median margin"),
        tuple(rows),
    )


def _curve(audit: Audit) -> Picture:
    figure, axes = panels(1, 1, size=4.2)
    panel = axes[0][0]
    radii = np.array([0.0, *(ball.radius for ball in audit.question.balls)])
    counted = (audit.clean, *audit.robust)
    shares = 100 * np.array([one.fraction for one in counted])
    spans = np.abs(100 * np.array([[one.low, one.high] for one in counted]).T - shares)
    panel.errorbar(radii, shares, yerr=spans, fmt="o", color=COLOURS[0], capsize=3, label="AutoAttack, 95 %")
    _falling(panel, audit.points["margin"], radii[-1], COLOURS[1], "smallest known distance is larger")
    if audit.certified is not None:
        _falling(panel, audit.points["certified"], radii[-1], COLOURS[2], "proven")
    panel.set_ylim(0, 100)
    panel.set_xlabel(f"radius, {audit.norm}")
    panel.set_ylabel("accuracy, %")
    panel.legend(fontsize=8)
    return Picture("robustness", figure, f"Robust accuracy over the radius, {audit.n:,} points.")


def _falling(panel: Axes, reach: Array, until: float, colour: str, label: str) -> None:
    """The share of points that reach as far as each radius: a proof is looked for up to the last, and holds there."""
    radii = np.linspace(0, until, 200)
    shares = [100 * ((reach > 0) & (reach >= radius)).mean() for radius in radii]
    panel.plot(radii, shares, color=colour, label=label)


def _margins(audit: Audit) -> Picture:
    figure, axes = panels(1, 1, size=4.2)
    panel = axes[0][0]
    order = np.argsort(audit.points["margin"])
    margin, certified = audit.points["margin"][order], audit.points["certified"][order]
    top = np.max(margin[np.isfinite(margin)], initial=0.0)
    shares = 100 * (np.arange(len(margin)) + 1) / len(margin)
    panel.plot(shares, np.minimum(margin, top), color=COLOURS[1], label="smallest known distance to another class")
    if not np.isnan(certified).any():
        panel.plot(shares, certified, ".", markersize=2, color=COLOURS[2], label="proven lower bound")
    panel.set_xlabel("points, by their margin, %")
    panel.set_ylabel(f"margin, {audit.norm}")
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=8)
    return Picture("margins", figure, "Each point's margin lies between the two; misclassified points have none.")


def _examples(audit: Audit) -> list[Picture]:
    """The points with the smallest margins, if they are images."""
    shown = audit.shown
    if shown is None or len(shown.before) == 0:
        return []
    figure, axes = panels(3, len(shown.before), size=1.5)
    for column, (before, after) in enumerate(zip(shown.before, shown.after, strict=True)):
        difference = after - before
        pictures = (before, after, 0.5 + difference / (2 * max(float(np.abs(difference).max()), 1e-12)))
        for row, picture in enumerate(pictures):
            _image(axes[row][column], picture)
        for row, classes in enumerate((shown.labels, shown.answers)):
            # A class may be called anything, also by what would be a formula.
            axes[row][column].set_title(audit.classes[classes[column]], fontsize=8, parse_math=False)
        axes[2][column].set_title(f"{shown.margins[column]:.3g}", fontsize=8)
    for panels_of_row, title in zip(axes, ("clean", "moved", "difference"), strict=True):
        panels_of_row[0].set_ylabel(title, fontsize=8)
    caption = (
        f"The {len(shown.before)} correctly classified points nearest to another class: clean, moved, and the "
        f"difference, enlarged; above them the class, the network's prediction, and the distance in {audit.norm}."
    )
    return [Picture("nearest", figure, caption)]


def _image(panel: Axes, picture: Array) -> None:
    if len(picture) == 1:
        panel.imshow(picture[0], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    else:
        panel.imshow(picture.transpose(1, 2, 0).clip(0, 1), interpolation="nearest")
    bare(panel)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _interval(low: float, high: float) -> str:
    return f"{100 * low:.1f} to {100 * high:.1f}"
