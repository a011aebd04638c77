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
            class_name(classes, int(examples.adversarial_predictions[i])),
        )
        for row, (picture, title) in enumerate(zip((before, enlarged, after), titles, strict=True), block):
            axes[row][column].set_axis_on()
            _image(axes[row][column], picture)
            # A class may be called anything, also by what would be a formula.
            axes[row][column].set_title(title, fontsize=9, parse_math=False)
    for row, panels_of_row in enumerate(axes):
        panels_of_row[0].set_ylabel(("clean", "change", "adversarial")[row % 3], fontsize=9)
    return figure


def _image(panel: Axes, picture: Array) -> None:
    if len(picture) == 1:
        panel.imshow(picture[0], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    else:
        panel.imshow(picture.transpose(1, 2, 0).clip(0, 1), interpolation="nearest")
    bare(panel)
