"""The pictures of an audit: robust accuracy over the radius, margins, and adversarial examples."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from widemargin.auditing.result import Adversarial, Audit
from widemargin.report.audit_tables import class_name
from widemargin.report.document import Picture
from widemargin.report.figures import BEST, COLOURS, TINTS, Array, bare, panels
from widemargin.report.tables import radius_text

SHOWN = 8
"""Adversarial examples on the page, and in a row of the sheet."""
SHEET = 24
"""Adversarial examples on the sheet."""
_BEYOND = 1.25
"""The curve goes on beyond the largest radius by this factor."""


def pictures(audit: Audit) -> tuple[Picture, ...]:
    """Below the tables."""
    return (_margins(audit), *_examples(audit))


def curve(audit: Audit) -> Picture:
    figure, ((panel,),) = panels(1, 1, size=4.3)
    figure.set_figheight(3.6)
    radii = np.array([0.0, *(ball.radius for ball in audit.config.balls)])
    beyond = np.linspace(0, _BEYOND * radii[-1], 250)
    within = beyond[beyond <= radii[-1]]
    counted = (audit.clean, *audit.robust)
    shares = 100 * np.array([one.fraction for one in counted])
    spans = np.abs(100 * np.array([[one.low, one.high] for one in counted]).T - shares)
    panel.plot(beyond, _falling(audit.points["margin"], beyond), color=COLOURS[1], label="empirical (upper bound)")
    if audit.certified is not None:
        # Certificates are computed up to the largest radius: beyond it nothing is known.
        certified = _falling(audit.points["certified"], within)
        panel.plot(within, certified, color=COLOURS[2], label="certified (lower bound)")
        panel.fill_between(within, certified, _falling(audit.points["margin"], within), color=TINTS[1], label="unknown")
        panel.axvline(radii[-1], color=BEST, linewidth=0.8, linestyle="dotted")
    panel.errorbar(
        radii, shares, yerr=spans, fmt="o", markersize=4, color=COLOURS[0], capsize=3, label="AutoAttack, 95 % interval"
    )
    panel.set_ylim(0, 100)
    panel.set_xlim(0, beyond[-1])
    panel.set_xlabel(f"eps, {audit.norm}")
    panel.set_ylabel("robust accuracy, %")
    panel.grid(color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    figure.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    caption = f"Robust accuracy over eps, {audit.n:,} points."
    if audit.certified is not None:
        caption += f" Certificates were computed up to eps = {radius_text(radii[-1])} (dotted)."
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
    top = np.max(margin[is_known], initial=0.0)
    # Of points without a known margin certified radii may be larger, up to the largest eps.
    top = top if is_known.all() and top > 0 else max(top, searched)
    shares = 100 * (np.arange(len(margin)) + 1) / len(margin)
    label = "smallest perturbation found (upper bound)"
    panel.plot(shares[is_known], margin[is_known], color=COLOURS[1], label=label)
    is_certified = not np.isnan(certified).any()
    between = "lies between the two bounds" if is_certified else "is at most this, without certificates"
    caption = f"The margin of each point {between}; it is 0 for misclassified points."
    if not is_known.all():
        # They come last: nothing is known of them but their certified radius.
        panel.axvspan(100 * is_known.mean(), 100, color=TINTS[1], label="no attack succeeded, at any norm")
        caption += f" For {int((~is_known).sum()):,} points (shaded) no attack found an adversarial example."
    if is_certified:
        is_at_end = certified >= searched
        style: dict[str, Any] = {"linestyle": "none", "color": COLOURS[2]}
        panel.plot(
            shares[~is_at_end], certified[~is_at_end], marker=".", label="certified radius (lower bound)", **style
        )
        if is_at_end.any():
            beyond = "certified up to the largest eps"
            panel.plot(shares[is_at_end], certified[is_at_end], marker="^", label=beyond, **style)
        panel.axhline(searched, color=BEST, linewidth=0.8, linestyle="dotted")
    panel.set_xlabel("points sorted by margin, %")
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
        f"The {len(nearest)} correctly classified points with the smallest margins: clean, perturbation (rescaled) and "
        f"adversarial; above them the label, the {audit.norm} norm and the predicted class."
    )
    return [Picture("nearest", sheet(nearest, audit.classes), caption)]


def sheet(examples: Adversarial, classes: tuple[str, ...]) -> Figure:
    """Of images: clean, perturbation and adversarial one below the other, eight side by side."""
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
            class_name(classes, int(examples.adversarial_predictions[i])),
        )
        for row, (picture, title) in enumerate(zip((before, enlarged, after), titles, strict=True), block):
            axes[row][column].set_axis_on()
            _image(axes[row][column], picture)
            # A class may be called anything, also by what would be a formula.
            axes[row][column].set_title(title, fontsize=9, parse_math=False)
    for row, panels_of_row in enumerate(axes):
        panels_of_row[0].set_ylabel(("clean", "perturbation", "adversarial")[row % 3], fontsize=9)
    return figure


def _image(panel: Axes, picture: Array) -> None:
    if len(picture) == 1:
        panel.imshow(picture[0], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    else:
        panel.imshow(picture.transpose(1, 2, 0).clip(0, 1), interpolation="nearest")
    bare(panel)
