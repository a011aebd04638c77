"""The tables of an audit: accuracy, attacks, changes of category, margins and classes."""

from __future__ import annotations

from collections import Counter

import numpy as np

from widemargin.auditing.result import Audit, Contribution
from widemargin.auditing.transfer import TRANSFER
from widemargin.data.limits import listed
from widemargin.measure.interval import wilson
from widemargin.report.tables import Table, percent, radius_text

_SHOWN = 8
"""Changes of category, and points that they bring nearest to another class."""


def tables(audit: Audit) -> tuple[Table, ...]:
    """Of an audit in which points were attacked, in the order of the page."""
    return (_accuracy(audit), _by_attack(audit), *_changes(audit), _distribution(audit), _by_class(audit))


def autoattack_of(audit: Audit) -> str:
    """An attack that failed is none of it."""
    missing = [name for name in audit.attacks if name in audit.failed]
    return f"AutoAttack without {', '.join(missing)}" if missing else "AutoAttack"


def _accuracy(audit: Audit) -> Table:
    columns = ["perturbation", "accuracy", "95 % interval"]
    rows = [["none (clean)", percent(audit.clean.fraction), _interval(audit.clean.low, audit.clean.high)]]
    proven = [""]
    if audit.config.categories is not None:
        alone = wilson(int((audit.right & (audit.points["margin"] > 0)).sum()), audit.n)
        rows.append(["change of category", percent(alone.fraction), _interval(alone.low, alone.high)])
        proven.append(percent(float((audit.points["certified"] > 0).mean())))
    for ball, robust in zip(audit.config.balls, audit.robust, strict=True):
        rows.append(
            [f"{audit.norm} {radius_text(ball.radius)}", percent(robust.fraction), _interval(robust.low, robust.high)]
        )
    if audit.certified is not None:
        columns.append("certified")
        proven += [percent(one.fraction) for one in audit.certified]
        rows = [[*row, share] for row, share in zip(rows, proven, strict=True)]
    return Table(f"Accuracy under {autoattack_of(audit)}", tuple(columns), tuple(map(tuple, rows)))


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
        "Attacks are run in this order, each only on points that are neither broken nor certified at every eps yet: "
        f"successes are not what an attack would reach alone.{_transferred(audit)} Each point counts once, at the "
        f"smallest eps at which it is misclassified, for the attack that found it.{_alone(audit)}"
    )
    return Table("Successes of each attack", ("attack", "points attacked", "successes", *radii), rows, note)


def _run_on(audit: Audit, one: Contribution) -> str:
    if one.name in audit.failed:
        return "failed"
    return "not recorded" if one.run_on is None else f"{one.run_on:,}"


def _transferred(audit: Audit) -> str:
    return f" The last, {TRANSFER}, is run on all points that are not broken yet." if TRANSFER in audit.attacks else ""


def _alone(audit: Audit) -> str:
    """Known of the attacks that were run on every point."""
    return "".join(
        f" The {one.name} attacks were run on every correctly classified point; their successes alone: "
        f"{_at_each_radius(audit, one.broken_alone)}."
        for one in audit.contributions
        if one.broken_alone is not None
    )


def _at_each_radius(audit: Audit, counts: tuple[int, ...]) -> str:
    balls = zip(counts, audit.config.balls, strict=True)
    return listed(f"{count:,} within {radius_text(ball.radius)}" for count, ball in balls)


def _changes(audit: Audit) -> list[Table]:
    """Which changes of category break most rows, and the rows that need the smallest perturbation besides."""
    if audit.config.categories is None:
        return []
    within = audit.points["way"] <= audit.config.balls[-1].radius
    changed = [(row, changes) for row, changes in enumerate(audit.changes) if changes and within[row]]
    counts = Counter(one for _, changes in changed for one in changes)
    largest = f"{audit.norm} {radius_text(audit.config.balls[-1].radius)}"
    most = Table(
        f"Changes of category in the nearest adversarial examples within {largest}",
        ("change", "points"),
        tuple((change, str(count)) for change, count in counts.most_common(_SHOWN)) or (("none", "0"),),
        f"Points whose nearest adversarial example has another category: {len(changed):,}."
        + (f" The {_SHOWN} most frequent changes." if len(counts) > _SHOWN else ""),
    )
    nearest = sorted(changed, key=lambda one: float(audit.points["way"][one[0]]))[:_SHOWN]
    rows = tuple(
        (
            str(audit.points["row"][row]),
            class_name(audit.classes, int(audit.points["label"][row])),
            ", ".join(changes),
            f"{audit.points['way'][row]:.4g}",
        )
        for row, changes in nearest
    )
    if not rows:
        return [most]
    columns = ("row of the test split", "label", "change of category", f"perturbation of numbers, {audit.norm}")
    note = "All points are in points.json; where the perturbation is 0, the change of category is enough."
    return [most, Table("Smallest perturbations with a change of category", columns, rows, note)]


def _distribution(audit: Audit) -> Table:
    margin = audit.points["margin"]
    shares = (0.05, 0.25, 0.5, 0.75, 0.95)
    values = [_distance(value) for value in np.quantile(margin, shares, method="inverted_cdf")]
    # With changes of category others have a margin of 0, too.
    at_zero = "misclassified" if audit.config.categories is None else "misclassified or broken by a category"
    columns = ("bound", at_zero, "min", "5 %", "25 %", "median", "75 %", "95 %", "mean over correct")
    right = margin[margin > 0]
    mean = _distance(right.mean()) if len(right) else ""
    wrong = percent(float((margin == 0).mean()))
    rows = [("smallest perturbation found (upper)", wrong, _distance(margin.min()), *values, mean)]
    certified = audit.points["certified"]
    if not np.isnan(certified).any():
        lower = [f"{value:.4g}" for value in np.quantile(certified, shares, method="inverted_cdf")]
        of_right = certified[margin > 0]
        rows.append(
            (
                "certified radius (lower)",
                wrong,
                f"{certified.min():.4g}",
                *lower,
                f"{of_right.mean():.4g}" if len(of_right) else "",
            )
        )
    largest = audit.config.balls[-1].radius
    note = f"Quantiles over all points, in {audit.norm}; misclassified points count as 0"
    if audit.config.categories is not None:
        note += ", as do those that a change of category alone breaks; norms are those of the numbers"
    if np.isinf(margin).any():
        note += f"; for {int(np.isinf(margin).sum()):,} points no attack found an adversarial example"
    note += f"; certified radii were computed up to {largest:g} only." if len(rows) > 1 else "."
    return Table("Margins", columns, tuple(rows), note)


def _by_class(audit: Audit) -> Table:
    labels, breaks = audit.points["label"], audit.points["breaks"]
    rows = []
    for number, name in enumerate(audit.classes):
        is_of_class = labels == number
        if not is_of_class.any():
            continue
        robust = [percent(float((breaks[is_of_class] > i).mean())) for i in range(len(audit.config.balls))]
        median = np.quantile(audit.points["margin"][is_of_class], 0.5, method="inverted_cdf")
        rows.append(
            (
                name,
                str(int(is_of_class.sum())),
                percent(float(audit.right[is_of_class].mean())),
                *robust,
                _distance(median),
            )
        )
    radii = (f"{audit.norm} {radius_text(ball.radius)}" for ball in audit.config.balls)
    return Table(
        f"Accuracy by class, clean and under {autoattack_of(audit)}",
        ("class", "points", "clean", *radii, "median margin"),
        tuple(rows),
    )


def class_name(classes: tuple[str, ...], number: int) -> str:
    """A network may have classes that these data have not."""
    return classes[number] if number < len(classes) else str(number)


def _distance(value: float) -> str:
    """Of points for which no attack found an adversarial example it is unknown."""
    return f"{value:.4g}" if np.isfinite(value) else "unknown"


def _interval(low: float, high: float) -> str:
    return f"{100 * low:.1f} to {100 * high:.1f}"
