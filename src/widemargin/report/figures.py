"""Pictures: points of the plane, decision regions, boundaries, landscapes; how sure and how right."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from widemargin.measure.calibration import Bins

# Distinguishable with every common colour blindness, and in grey.
COLOURS = ("#2166ac", "#e08214", "#35978f", "#8073ac", "#b2182b")
TINTS = ("#c9dcee", "#fbe0c0", "#cfe8e5", "#dfdbeb", "#f3c9cc")
BOUNDARY, BEST, WRONG = "#111111", "#777777", "#b2182b"
# From class 0 to class 1, light enough for points to show.
PROBABILITY = LinearSegmentedColormap.from_list("probability", [TINTS[0], "white", TINTS[1]])

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Picture:
    """One panel: labelled points, which of them are misclassified, and on a grid the lead of class 1 over class 0."""

    points: Array
    labels: Array
    wrong: Array
    x: Array
    y: Array
    lead: Array


def draw_regions(axes: Axes, picture: Picture) -> None:
    """Decision regions, the network's boundary (solid) and the max-margin one (dashed), and the points."""
    axes.contourf(picture.x, picture.y, picture.lead, levels=[-np.inf, 0, np.inf], colors=TINTS[:2])
    axes.contour(picture.x, picture.y, picture.lead, levels=[0.0], colors=BOUNDARY, linewidths=1.4)
    best = nearest_neighbour_lead(picture)
    axes.contour(picture.x, picture.y, best, levels=[0.0], colors=BEST, linewidths=1.0, linestyles="dashed")
    draw_points(axes, picture.points, picture.labels)
    rings = picture.points[picture.wrong]
    axes.scatter(rings[:, 0], rings[:, 1], s=70, facecolors="none", edgecolors=WRONG, linewidths=1.4, zorder=4)
    bare(axes)


def draw_points(axes: Axes, points: Array, labels: Array, size: float = 14, marker: str = "o") -> None:
    for label in np.unique(labels):
        members = points[labels == label]
        style: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.5} if marker == "o" else {"linewidths": 1.0}
        axes.scatter(members[:, 0], members[:, 1], s=size, color=COLOURS[int(label)], marker=marker, zorder=3, **style)


def draw_landscape(axes: Axes, x: Array, y: Array, values: Array, colours: str | Colormap) -> None:
    axes.pcolormesh(x, y, values, cmap=colours, shading="gouraud", rasterized=True)
    bare(axes)


def draw_reliability(axes: Axes, bins: Bins) -> None:
    """Accuracy over confidence, bin by bin: on the dashed line a network is as right as it is sure.

    Bars are accuracies, dots stand at the mean confidence of a bin, numbers say how many answers it holds.
    """
    filled = bins.count > 0
    left, width = bins.edges[:-1][filled], np.diff(bins.edges)[filled]
    accuracy = bins.accuracy[filled]
    axes.bar(left, accuracy, width, align="edge", color=TINTS[0], edgecolor="white", linewidth=0.8)
    axes.plot([0, 1], [0, 1], color=BEST, linewidth=1.0, linestyle="dashed")
    axes.scatter(bins.confidence[filled], accuracy, s=12, color=COLOURS[0], zorder=3)
    for start, wide, height, count in zip(left, width, accuracy, bins.count[filled], strict=True):
        # Above the bar, or inside it where there is no room.
        above = height < 0.8
        place = height + 0.04 if above else height - 0.04
        alignment = "bottom" if above else "top"
        axes.text(start + wide / 2, place, str(count), ha="center", va=alignment, rotation=90, fontsize=6)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.03)
    axes.set_aspect("equal")
    axes.set_xlabel("confidence")
    axes.set_ylabel("accuracy")


def nearest_neighbour_lead(picture: Picture) -> Array:
    """How much nearer each grid point is to class 1 than to class 0: its zero line is the max-margin boundary."""
    grid = np.stack(np.meshgrid(picture.x, picture.y), -1)
    distance = np.linalg.norm(grid[:, :, None] - picture.points, axis=-1)
    return np.asarray(distance[..., picture.labels == 0].min(-1) - distance[..., picture.labels == 1].min(-1))


def panels(rows: int, columns: int, size: float = 2.6) -> tuple[Figure, list[list[Axes]]]:
    figure = Figure(figsize=(size * columns, size * rows + 0.3), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False)
    return figure, [list(row) for row in grid]


def bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal")


def label_grid(axes: Sequence[Sequence[Axes]], columns: Sequence[str], rows: Sequence[str]) -> None:
    for panel, title in zip(axes[0], columns, strict=True):
        panel.set_title(title, fontsize=10)
    for row, title in zip(axes, rows, strict=True):
        row[0].set_ylabel(title, fontsize=10)


def bin_edges(values: Array, bins: int) -> list[float]:
    """Of a histogram, also of values that are the same up to rounding."""
    low, high = float(np.min(values)), float(np.max(values))
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-300):
        low, high = low - 0.5, high + 0.5
    edges: list[float] = np.linspace(low, high, bins + 1).tolist()
    return edges


def png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=160, metadata={"Software": None})
    return content.getvalue()
