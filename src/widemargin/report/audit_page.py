"""The page of an audit: its figures as tables and pictures; no network is run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from widemargin.auditing.result import Adversarial, Audit, Contribution, turn_of
from widemargin.auditing.transfer import TRANSFER
from widemargin.data.limits import listed
from widemargin.measure.diagnostics import Finding
from widemargin.measure.interval import wilson
from widemargin.report.advice import Words, advice_on, advice_on_time
from widemargin.report.document import Picture, Remark, Report, Tone
from widemargin.report.figures import BEST, COLOURS, TINTS, Array, bare, panels
from widemargin.report.tables import Table, radius_text

SHOWN = 8
"""Adversarial examples on the page, and in a row of the sheet."""
SHEET = 24
"""Adversarial examples on the sheet."""
_BEYOND = 1.25
"""The curve goes on beyond the largest radius by this factor."""
_TONES: dict[str, Tone] = {"fine": "good", "suspicious": "doubtful", "wrong": "bad"}
DEFINITIONS: Mapping[str, str] = {
    "linf": "the largest change of any single feature or pixel.",
    "l2": "the root of the sum of the squared changes of all features or pixels.",
    "l1": "the sum of the sizes of the changes of all features or pixels.",
    "AutoAttack": "the standard suite of attacks (Croce and Hein 2020): what none of them breaks counts as robust, "
    "which is an upper bound.",
    "attacks tried": "each searches for a change within the radius that makes the class wrong; a point is not robust "
    "if any of them succeeds.",
    "proven": "by bounds of every layer: no change within the radius can alter the class. A lower bound.",
    "proven lower bound": "the distance up to which no change can alter the class, by bounds of every layer.",
    "certified": "proven by bounds of every layer: no change within the radius can alter the class.",
    "95 % interval": "where the share among all possible test examples lies, given these (Wilson).",
    "margin": "the distance from a point to the nearest place of another class; 0 for misclassified points.",
    "median margin": "half of the points of the class have a smaller margin, half a larger one.",
    "smallest known distance": "to a place of another class that some attack found: an upper bound of the margin.",
    "clean": "without any change.",
    "minimum-norm": "attacks that search for the nearest place of another class at any distance: DDN, FMN, FAB and "
    "APGD in shrinking balls.",
    "change of category": "the category of a column becomes another of that column, as often as allowed; no number "
    "changes.",
    "apgd-ce": "projected gradient ascent of cross-entropy with its own step sizes (Croce and Hein 2020).",
    "apgd-dlr": "the same of the difference-of-logits ratio (Croce and Hein 2020).",
    "apgd-margin": "the same of the difference of the two logits, where there are only two classes.",
    "apgd-t": "projected gradient ascent towards each of several other classes (Croce and Hein 2020).",
    "fab-t": "steps to the nearest linearised boundary, class by class (Croce and Hein 2020b).",
    "square": "random square or window changes, without gradients (Andriushchenko et al. 2020).",
    "transfer from a surrogate": "a small network is fitted to the predictions and attacked instead; what fools it is "
    "tried on this one.",
    "inputs in box": "do all test points lie within the values that count as valid?",
    "modes": "is a layer in train mode, whose answer would change?",
    "probabilities": "does the network return probabilities instead of logits?",
    "randomness": "do two passes over the same points give the same answer?",
    "gradients": "do gradients lead anywhere, or are they zero or lost in rounding?",
    "rising": "does robust accuracy rise with the radius, which cannot be?",
    "loss surface": "does the loss rise along its own gradient?",
    "more steps": "do ten times the steps break more points?",
    "random noise": "does noise break points that gradients leave?",
    "black box": "does an attack without gradients break points that those with gradients leave?",
    "transfer": "do changes that fool another network break points that all attacks leave?",
    "large radius": "does any point survive where everything is within reach?",
}


def page(audit: Audit, words: Words | None = None) -> Report:
    """`words` are those of the command that made the audit: advice then comes with a command."""
    remarks = _remarks(audit, words or {})
    if not audit.attacks:
        return _unattacked(audit, remarks)
    settings = (
        f"Attacks: {', '.join(_in_turn(audit))}, in turn, each on the points that stand; margins by minimum-norm "
        f"attacks and by those; box {_box(audit)}; seed {audit.config.seed}; points drawn at random from the test "
        f"part; 95 % Wilson intervals; {audit.seconds:,.0f} s. {' '.join((*_drawn(audit), *audit.notes))}"
    )
    return Report(
        f"Audit of {audit.name}",
        f"{_answer(audit)} {_warnings(audit)}",
        settings.strip(),
        remarks,
        (_accuracy(audit), _by_attack(audit), *_changes(audit), _distribution(audit), _by_class(audit)),
        (_margins(audit), *_examples(audit)),
        lead=_curve(audit),
        definitions=DEFINITIONS,
    )


def _answer(audit: Audit) -> str:
    """At the largest radius: what holds, by which attacks, and how much of it is proven."""
    largest, robust = audit.config.balls[-1], audit.robust[-1]
    left = "" if audit.n == audit.asked else f" (the {audit.n:,} of {audit.asked:,} points for which there was time)"
    return (
        f"Of {audit.n:,} test examples of {audit.data}{left}, {_percent(robust.fraction)} "
        f"[{100 * robust.low:.1f}, {100 * robust.high:.1f}] are still classified correctly however they are changed by "
        f"up to {radius_text(largest.radius)} in {audit.norm}{_changeable(audit)}, {_known(audit)}. Unchanged, "
        f"{_percent(audit.clean.fraction)} are."
    )


def _changeable(audit: Audit) -> str:
    changes = audit.config.categories
    if changes is None:
        return ""
    names = listed(name for name, _ in audit.categories)
    return (
        f" and in up to {changes.most} of the categories {names}" if len(audit.categories) > 1 else f" and in {names}"
    )


def _known(audit: Audit) -> str:
    """Attacks show too much at worst, certificates too little."""
    tried = f"under {_autoattack(audit)} (attacks tried: {', '.join(_in_turn(audit))})"
    if audit.certified is None:
        return f"{tried}; nothing is proven"
    proven = audit.certified[-1]
    if proven.count == audit.robust[-1].count:
        return "which is proven" + (f"; {tried} the others are not" if proven.fraction < 1 else "")
    return f"{tried}; proven for {_percent(proven.fraction)}"


def _in_turn(audit: Audit) -> list[str]:
    """The attacks that were led, in their order."""
    return sorted(audit.led, key=turn_of)


def _autoattack(audit: Audit) -> str:
    """An attack that failed is none of it."""
    missing = [name for name in audit.attacks if name in audit.failed]
    return f"AutoAttack without {', '.join(missing)}" if missing else "AutoAttack"


def _unattacked(audit: Audit, remarks: tuple[Remark, ...]) -> Report:
    """What is left where attacks would make no sense."""
    summary = (
        f"{audit.too_short} {audit.name} on {audit.data}: {_percent(audit.clean.fraction)} of {audit.n:,} test points "
        "are classified correctly. Nothing was attacked, so nothing is known of its robustness."
    ).lstrip()
    return Report(f"Audit of {audit.name}", summary, " ".join(audit.notes), remarks, definitions=DEFINITIONS)


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
        return f"Before you trust these numbers, read the findings on {', '.join(warnings)}."
    made, of = _diagnoses(audit)
    some = f"{made} diagnoses" if made == of else f"the {made} diagnoses, of {of}, for which there was time"
    return f"None of {some} gives a reason to doubt these numbers."


def _diagnoses(audit: Audit) -> tuple[int, int]:
    """How many were made, and of how many."""
    return len(audit.findings), len(audit.findings) + len(audit.left_out)


def _remarks(audit: Audit, words: Words) -> tuple[Remark, ...]:
    worst_first = sorted(audit.findings, key=lambda finding: list(_TONES).index(finding.verdict), reverse=True)
    remarks = tuple(_remark(audit, finding, words) for finding in worst_first)
    if not audit.left_out:
        return remarks
    made, of = _diagnoses(audit)
    evidence = f"the time was up; nothing is known of: {', '.join(audit.left_out)}"
    advice = advice_on_time(audit.left_out)
    claim = f"only {made} of {of} diagnoses were made"
    first = Remark(claim, "incomplete", "doubtful", evidence, advice.text, advice.command(words))
    return (first, *remarks)


def _remark(audit: Audit, finding: Finding, words: Words) -> Remark:
    advice = advice_on(audit, finding)
    evidence = finding.evidence.replace(repr(audit.config.balls[0].box), _box(audit))
    tone = _TONES[finding.verdict]
    return Remark(finding.name, finding.verdict, tone, evidence, advice.text, advice.command(words))


def _box(audit: Audit) -> str:
    """A page has no room for an interval of every feature."""
    box, changes = audit.config.balls[0].box, audit.config.categories
    changing = set() if changes is None else {place for column in changes.columns for place in column}
    fixed = [name for name, place in zip(audit.fixed, box.fixed, strict=True) if place not in changing]
    held = f", with {listed(fixed)} held fixed" if fixed else ""
    if changes is not None:
        held += f", changes of category ({listed(name for name, _ in audit.categories)}) counted apart"
    if isinstance(box.low, tuple):
        return f"of {len(box.low)} intervals, as in audit.json{held}"
    return f"{box.holding(())!r}{held}"


def _accuracy(audit: Audit) -> Table:
    columns = ["points moved within", "accuracy", "95 % interval"]
    rows = [["nothing (clean)", _percent(audit.clean.fraction), _interval(audit.clean.low, audit.clean.high)]]
    proven = [""]
    if audit.config.categories is not None:
        alone = wilson(int((audit.right & (audit.points["margin"] > 0)).sum()), audit.n)
        rows.append(["a change of category", _percent(alone.fraction), _interval(alone.low, alone.high)])
        proven.append(_percent(float((audit.points["certified"] > 0).mean())))
    for ball, robust in zip(audit.config.balls, audit.robust, strict=True):
        rows.append(
            [f"{audit.norm} {radius_text(ball.radius)}", _percent(robust.fraction), _interval(robust.low, robust.high)]
        )
    if audit.certified is not None:
        columns.append("certified")
        proven += [_percent(one.fraction) for one in audit.certified]
        rows = [[*row, share] for row, share in zip(rows, proven, strict=True)]
    return Table(f"Accuracy under {_autoattack(audit)}", tuple(columns), tuple(map(tuple, rows)))


def _by_attack(audit: Audit) -> Table:
    radii = tuple(f"{audit.norm} {radius_text(ball.radius)}" for ball in audit.config.balls)
    rows = tuple(
        (
            one.name,
            _run_on(audit, one),
            f"{sum(one.broken):,}",
            *(f"{count:,}" for count in one.broken),
        )
        for one in audit.contributions
    )
    note = (
        "Attacks are run in this order, each only on the points that those before it left standing in some ball and no "
        "proof covers: the numbers say what an attack broke of the points on which it was run, not what it would break "
        f"alone.{_transferred(audit)} Each broken point counts once: in the smallest ball in which it is "
        f"misclassified, for the attack that showed it.{_alone(audit)}"
    )
    return Table("Points broken by each attack", ("attack", "run on", "broke of these", *radii), rows, note)


def _run_on(audit: Audit, one: Contribution) -> str:
    if one.name in audit.failed:
        return "failed"
    return "not recorded" if one.run_on is None else f"{one.run_on:,}"


def _transferred(audit: Audit) -> str:
    return f" The last, {TRANSFER}, is tried on all that stand." if TRANSFER in audit.attacks else ""


def _alone(audit: Audit) -> str:
    """Known of the attacks that were run on every point."""
    return "".join(
        f" The {one.name} attacks were run on every correctly classified point, so it is known what they break alone: "
        f"{_at_each_radius(audit, one.broken_alone)}."
        for one in audit.contributions
        if one.broken_alone is not None
    )


def _at_each_radius(audit: Audit, counts: tuple[int, ...]) -> str:
    balls = zip(counts, audit.config.balls, strict=True)
    return listed(f"{count:,} within {radius_text(ball.radius)}" for count, ball in balls)


def _changes(audit: Audit) -> list[Table]:
    """Which changes of category break most rows, and the rows that need the least beside."""
    if audit.config.categories is None:
        return []
    within = audit.points["way"] <= audit.config.balls[-1].radius
    changed = [(row, changes) for row, changes in enumerate(audit.changes) if changes and within[row]]
    counts = Counter(one for _, changes in changed for one in changes)
    largest = f"{audit.norm} {radius_text(audit.config.balls[-1].radius)}"
    most = Table(
        f"Changes of category at the nearest wrong place within {largest}",
        ("change", "points"),
        tuple((change, str(count)) for change, count in counts.most_common(SHOWN)) or (("none", "0"),),
        f"Points at whose nearest wrong place a category differs from theirs: {len(changed):,}."
        + (f" The {SHOWN} most frequent changes." if len(counts) > SHOWN else ""),
    )
    nearest = sorted(changed, key=lambda one: float(audit.points["way"][one[0]]))[:SHOWN]
    rows = tuple(
        (
            str(audit.points["row"][row]),
            _class_name(audit.classes, int(audit.points["label"][row])),
            ", ".join(changes),
            f"{audit.points['way'][row]:.4g}",
        )
        for row, changes in nearest
    )
    if not rows:
        return [most]
    columns = ("row of the test part", "class", "change of category", f"change of numbers, {audit.norm}")
    note = "All points are in points.json; where the numbers need not change at all, the category is enough."
    return [most, Table("Points that a changed category brings nearest to another class", columns, rows, note)]


def _distribution(audit: Audit) -> Table:
    margin = audit.points["margin"]
    shares = (0.05, 0.25, 0.5, 0.75, 0.95)
    values = [_distance(value) for value in np.quantile(margin, shares, method="inverted_cdf")]
    # With changes of category others have a margin of 0, too.
    at_zero = "misclassified" if audit.config.categories is None else "misclassified or by a category"
    columns = ("", at_zero, "least", *(f"{100 * share:g} %" for share in shares), "mean, if correct")
    right = margin[margin > 0]
    mean = _distance(right.mean()) if len(right) else ""
    wrong = _percent(float((margin == 0).mean()))
    rows = [("smallest known distance to another class", wrong, _distance(margin.min()), *values, mean)]
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
    largest = audit.config.balls[-1].radius
    note = f"In {audit.norm}; misclassified points count with 0"
    if audit.config.categories is not None:
        note += ", and so do those that a change of category makes so; distances are those of the numbers"
    if np.isinf(margin).any():
        note += f"; for {int(np.isinf(margin).sum()):,} points no attack found a place of another class"
    note += f"; lower bounds were looked for up to {largest:g} only." if len(rows) > 1 else "."
    return Table("Margins", columns, tuple(rows), note)


def _by_class(audit: Audit) -> Table:
    labels, breaks = audit.points["label"], audit.points["breaks"]
    rows = []
    for number, name in enumerate(audit.classes):
        is_of_class = labels == number
        if not is_of_class.any():
            continue
        robust = [_percent(float((breaks[is_of_class] > i).mean())) for i in range(len(audit.config.balls))]
        median = np.quantile(audit.points["margin"][is_of_class], 0.5, method="inverted_cdf")
        rows.append(
            (
                name,
                str(int(is_of_class.sum())),
                _percent(float(audit.right[is_of_class].mean())),
                *robust,
                _distance(median),
            )
        )
    radii = (f"{audit.norm} {radius_text(ball.radius)}" for ball in audit.config.balls)
    return Table(
        f"Class by class, clean and under {_autoattack(audit)}",
        ("class", "points", "clean", *radii, "median margin"),
        tuple(rows),
    )


def _curve(audit: Audit) -> Picture:
    figure, ((panel,),) = panels(1, 1, size=4.3)
    figure.set_figheight(3.6)
    radii = np.array([0.0, *(ball.radius for ball in audit.config.balls)])
    beyond = np.linspace(0, _BEYOND * radii[-1], 250)
    within = beyond[beyond <= radii[-1]]
    counted = (audit.clean, *audit.robust)
    shares = 100 * np.array([one.fraction for one in counted])
    spans = np.abs(100 * np.array([[one.low, one.high] for one in counted]).T - shares)
    panel.plot(beyond, _falling(audit.points["margin"], beyond), color=COLOURS[1], label="no attack succeeded")
    if audit.certified is not None:
        # Proofs are looked for up to the largest radius: beyond it nothing is known.
        proven = _falling(audit.points["certified"], within)
        panel.plot(within, proven, color=COLOURS[2], label="proven")
        panel.fill_between(within, proven, _falling(audit.points["margin"], within), color=TINTS[1], label="not known")
        panel.axvline(radii[-1], color=BEST, linewidth=0.8, linestyle="dotted")
    panel.errorbar(
        radii, shares, yerr=spans, fmt="o", markersize=4, color=COLOURS[0], capsize=3, label="AutoAttack, 95 %"
    )
    panel.set_ylim(0, 100)
    panel.set_xlim(0, beyond[-1])
    panel.set_xlabel(f"change of up to, {audit.norm}")
    panel.set_ylabel("classified correctly, %")
    panel.grid(color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    figure.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    caption = f"Robust accuracy over the radius, {audit.n:,} points."
    if audit.certified is not None:
        caption += f" Proofs were searched for up to {radius_text(radii[-1])} (dotted)."
    return Picture("robustness", figure, caption)


def _falling(reach: Array, radii: Array) -> Array:
    """The share of points that reach as far as each radius, in percent."""
    return np.array([100 * ((reach > 0) & (reach >= radius)).mean() for radius in radii])


def _margins(audit: Audit) -> Picture:
    figure, axes = panels(1, 1, size=4.2)
    panel = axes[0][0]
    order = np.argsort(audit.points["margin"])
    margin, certified = audit.points["margin"][order], audit.points["certified"][order]
    searched, is_known = audit.config.balls[-1].radius, np.isfinite(margin)
    top = max(np.max(margin[is_known], initial=0.0), searched)
    shares = 100 * (np.arange(len(margin)) + 1) / len(margin)
    label = "smallest known distance to another class"
    panel.plot(shares[is_known], margin[is_known], color=COLOURS[1], label=label)
    is_proven = not np.isnan(certified).any()
    between = "lies between the two" if is_proven else "is at most this; nothing is proven"
    caption = f"Each point's margin {between}; misclassified points have none."
    if not is_known.all():
        # They come last: nothing is known of them but what is proven.
        panel.axvspan(100 * is_known.mean(), 100, color=TINTS[1], label="no attack succeeded, at any distance")
        caption += f" Of {int((~is_known).sum()):,} points (shaded) no attack found the distance to another class."
    if is_proven:
        is_at_end = certified >= searched
        style: dict[str, Any] = {"linestyle": "none", "color": COLOURS[2]}
        panel.plot(shares[~is_at_end], certified[~is_at_end], marker=".", label="proven lower bound", **style)
        if is_at_end.any():
            beyond = "proven so far, no more was searched"
            panel.plot(shares[is_at_end], certified[is_at_end], marker="^", label=beyond, **style)
        panel.axhline(searched, color=BEST, linewidth=0.8, linestyle="dotted")
    panel.set_xlabel("points, by their margin, %")
    panel.set_ylabel(f"margin, {audit.norm}")
    panel.set_xlim(0, 100)
    panel.set_ylim(0, 1.05 * top)
    figure.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=1, fontsize=9, frameon=False)
    return Picture("margins", figure, caption)


def _examples(audit: Audit) -> list[Picture]:
    """The points with the smallest margins, if they are images."""
    known = audit.adversarial
    if known is None or not known.are_images or len(known) == 0:
        return []
    nearest = known.nearest(SHOWN)
    caption = (
        f"The {len(nearest)} correctly classified points nearest to another class: clean, the change, enlarged, and "
        f"adversarial; above them the class, the distance in {audit.norm}, and the network's prediction."
    )
    return [Picture("nearest", sheet(nearest, audit.classes), caption)]


def sheet(examples: Adversarial, classes: tuple[str, ...]) -> Figure:
    """Of images: clean, change and adversarial one below the other, eight side by side."""
    columns = min(SHOWN, len(examples))
    figure, axes = panels(3 * -(-len(examples) // columns), columns, size=1.5)
    for panel in (panel for row in axes for panel in row):
        panel.set_axis_off()
    for i, (before, after) in enumerate(zip(examples.inputs, examples.adversarial, strict=True)):
        block, column = 3 * (i // columns), i % columns
        change = after - before
        enlarged = 0.5 + change / (2 * max(float(np.abs(change).max()), 1e-12))
        titles = (
            classes[examples.labels[i]],
            f"{examples.distance[i]:.3g}",
            _class_name(classes, int(examples.adversarial_predictions[i])),
        )
        for row, (picture, title) in enumerate(zip((before, enlarged, after), titles, strict=True), block):
            axes[row][column].set_axis_on()
            _image(axes[row][column], picture)
            # A class may be called anything, also by what would be a formula.
            axes[row][column].set_title(title, fontsize=9, parse_math=False)
    for row, panels_of_row in enumerate(axes):
        panels_of_row[0].set_ylabel(("clean", "change", "adversarial")[row % 3], fontsize=9)
    return figure


def _class_name(classes: tuple[str, ...], number: int) -> str:
    """A network may have classes that these data have not."""
    return classes[number] if number < len(classes) else str(number)


def _image(panel: Axes, picture: Array) -> None:
    if len(picture) == 1:
        panel.imshow(picture[0], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    else:
        panel.imshow(picture.transpose(1, 2, 0).clip(0, 1), interpolation="nearest")
    bare(panel)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _distance(value: float) -> str:
    """Of points that no attack moved to another class it is not known."""
    return f"{value:.4g}" if np.isfinite(value) else "not known"


def _interval(low: float, high: float) -> str:
    return f"{100 * low:.1f} to {100 * high:.1f}"
