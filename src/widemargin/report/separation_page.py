"""The page of a dataset's separation: quantiles, admissible radii, the closest pairs, copies; and the same as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from widemargin.data.dataset import Dataset
from widemargin.data.limits import listed
from widemargin.measure.separation import QUANTILES, Separation
from widemargin.report.document import Picture, Remark, Report
from widemargin.report.figures import COLOURS, bare, bin_edges, panels
from widemargin.report.tables import Table, percent

_PAIRS = 6
"""Closest pairs that are shown for each norm."""
_GROUPS = 20
"""Copies that are listed on the page; the JSON has all."""
_COLUMNS = 3
"""Of a row, those in which a pair differs most."""
_SHARES = (0.0, 0.01, 0.05)
DEFINITIONS = {
    "linf": "the largest difference in any single feature or pixel.",
    "l2": "the root of the sum of the squared differences in all features or pixels.",
    "l1": "the sum of the differences in all features or pixels.",
    "balls": "all inputs within the radius of an example.",
    "ball": "all inputs within the radius of an example.",
}


@dataclass(frozen=True, eq=False)
class Separated:
    """A dataset, and how far its classes are apart in each norm."""

    data: str
    examples: Dataset
    norms: Mapping[str, Separation]
    duplicates: list[list[int]]
    contradictions: list[list[int]]
    rows: tuple[int, ...] = ()
    """Row in the file of each example, counted from 1; 1, 2, ... by default."""
    apart_in_fixed: list[list[int]] = field(default_factory=list)
    """Groups of rows of different classes that differ only in what no perturbation may change."""
    auto: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By norm: the radii of `--eps auto`."""
    eps: float | None = None
    """A radius of which it is said how many balls meet."""

    @property
    def units(self) -> str:
        schema = self.examples.schema
        if schema is None:
            return "units of the data"
        usual = "standard deviations of the training rows" if schema.standardized else "units of the data"
        others = [
            f"{column.name} in units of {column.scale:g}"
            for _, column in schema.numbers
            if column.scale != ((column.spread or 1.0) if schema.standardized else 1.0)
        ]
        return f"{usual}, {', '.join(others)}" if others else usual

    @property
    def fixed(self) -> tuple[str, ...]:
        """Names of the features in which no perturbation moves a point, and no distance is measured."""
        schema = self.examples.schema
        return () if schema is None else tuple(schema.features[place] for place in schema.fixed)

    @cached_property
    def copies(self) -> list[list[int]]:
        """The groups of duplicates of one class."""
        contradicting = {rows[0] for rows in self.contradictions}
        return [rows for rows in self.duplicates if rows[0] not in contradicting]

    @cached_property
    def first(self) -> dict[int, int]:
        """For each row that has copies, the first of them."""
        return {row: rows[0] for rows in self.duplicates for row in rows}

    def summary(self) -> dict[str, Any]:
        """For separation.json.  Rows are counted from 1, as in the file."""
        return {
            "data": self.data,
            "digest": self.examples.digest,
            "n": len(self.examples),
            "shape": list(self.examples.stored.shape[1:]),
            "classes": [str(name) for name in self.examples.names],
            "units": self.units,
            "fixed": list(self.fixed),
            "norms": [self._norm(separation) for separation in self.norms.values()],
            "duplicates": [self._group(rows) for rows in self.duplicates],
            "contradictions": [self._group(rows) for rows in self.contradictions],
            "apart_in_fixed": [self._group(rows) for rows in self.apart_in_fixed],
        }

    def _norm(self, separation: Separation) -> dict[str, Any]:
        content = separation.to_dict(_PAIRS, self.first)
        pairs = [
            {
                "rows": [self.row(row) for row in pair["rows"]],
                "classes": [self.class_of(row) for row in pair["rows"]],
                "distance": pair["distance"],
            }
            for pair in content["closest"]
        ]
        meeting = None if self.eps is None else {"eps": self.eps, "share": separation.meeting(self.eps)}
        auto = self.auto.get(separation.norm)
        return {**content, "closest": pairs, "auto": None if auto is None else dict(auto), "meeting": meeting}

    def _group(self, rows: list[int]) -> dict[str, Any]:
        return {"rows": [self.row(row) for row in rows], "classes": [self.class_of(row) for row in rows]}

    def row(self, place: int) -> int:
        return self.rows[place] if self.rows else place + 1

    def class_of(self, row: int) -> str:
        return str(self.examples.names[int(self.examples.labels[row])])


def page(separated: Separated) -> Report:
    first = next(iter(separated.norms.values()))
    exact = first.exact
    every = f"all {first.total:,} examples" if exact else f"{len(first.rows):,} of {first.total:,} examples, drawn"
    summary = (
        f"{separated.data}: {len(separated.examples):,} examples of {separated.examples.classes} classes. "
        + "Largest radius at which no two balls of different classes meet: "
        + ", ".join(_radius(separation) for separation in separated.norms.values())
        + "."
    )
    if separated.eps is not None:
        shares = (f"{percent(one.meeting(separated.eps))} in {norm}" for norm, one in separated.norms.items())
        summary += (
            f" At radius {separated.eps:g} a ball meets one of another class for {', '.join(shares)} of the examples."
        )
    settings = f"The distance of {every} to the nearest example of another class among all, in {separated.units}: " + (
        "exact." if exact else "exact for each, but the smallest of all may be smaller (a sample)."
    )
    if separated.fixed:
        settings += f" Not measured in features that no perturbation may change: {listed(separated.fixed)}."
    tables = (
        _quantiles(separated),
        _radii(separated),
        *_auto(separated),
        *_pairs(separated),
        *_copies(separated),
    )
    pictures = (_images(separated),) if separated.examples.stored.ndim == 4 else ()
    return Report(
        f"Separation of {separated.data}",
        summary,
        settings,
        _remarks(separated),
        tables,
        pictures,
        lead=_histograms(separated),
        definitions=DEFINITIONS,
    )


def _radius(separation: Separation) -> str:
    bound = "" if separation.exact else "at most "
    return f"{bound}{separation.radius():.3g} in {separation.norm}"


def _quantiles(separated: Separated) -> Table:
    return Table(
        "Distance to the nearest example of another class",
        ("norm", *(f"{100 * share:g} %" for share in QUANTILES)),
        tuple(
            (norm, *(f"{separation.quantile(share):.3g}" for share in QUANTILES))
            for norm, separation in separated.norms.items()
        ),
        f"Quantiles over the examples, in {separated.units}.",
    )


def _radii(separated: Separated) -> Table:
    return Table(
        "Admissible radii",
        ("norm", "no two balls meet", "1 % meet another", "5 % meet another"),
        tuple(
            (norm, *(f"{separation.radius(share):.3g}" for share in _SHARES))
            for norm, separation in separated.norms.items()
        ),
        "The largest radius at which none, at most 1 % or at most 5 % of the examples have a ball that meets one of "
        "another class: half of that quantile of the distances.",
    )


def _auto(separated: Separated) -> tuple[Table, ...]:
    if not separated.auto:
        return ()
    return (
        Table(
            "Radii of `widemargin train --eps auto`",
            ("norm", "udp methods", "other methods"),
            tuple((norm, f"{radii['udp']:.3g}", f"{radii['others']:.3g}") for norm, radii in separated.auto.items()),
            "Half the median distance and half the 25 % quantile, over the training split alone (at most 1,000 "
            "examples, drawn class by class). About a half or a quarter of the balls then meet one of another class: "
            "the udp methods stop at the boundary, other methods may cross it.",
        ),
    )


def _pairs(separated: Separated) -> tuple[Table, ...]:
    return tuple(
        Table(
            f"The closest pairs of different classes in {norm}",
            ("rows", "classes", "distance", *(() if separated.examples.stored.ndim == 4 else ("differ most in",))),
            tuple(_pair(separated, *pair) for pair in separation.closest(_PAIRS, separated.first)),
            "Rows are counted from 1"
            + (", the line of names not counted." if separated.examples.schema is not None else "."),
        )
        for norm, separation in separated.norms.items()
    )


def _pair(separated: Separated, one: int, two: int, distance: float) -> tuple[str, ...]:
    cells = (
        f"{separated.row(one)} and {separated.row(two)}",
        f"{separated.class_of(one)}, {separated.class_of(two)}",
        f"{distance:.4g}",
    )
    return cells if separated.examples.stored.ndim == 4 else (*cells, _difference(separated, one, two))


def _difference(separated: Separated, one: int, two: int) -> str:
    """Names of the columns in which two rows differ most, and their values there, in the units of the file."""
    a, b = (separated.examples.stored[row].flatten().double().numpy() for row in (one, two))
    apart, schema = np.abs(a - b), separated.examples.schema
    if schema is not None:
        apart[list(schema.fixed)] = 0
    order = [place for place in np.argsort(-apart, kind="stable")[:_COLUMNS].tolist() if apart[place] > 0]
    parts = [_cells(separated.examples, place, a[place], b[place]) for place in order]
    return "; ".join(parts) or "nothing"


def _cells(examples: Dataset, place: int, *values: float) -> str:
    schema = examples.schema
    numbers = [] if schema is None else schema.numbers
    if place < len(numbers):
        _, column = numbers[place]
        values = tuple(value * column.scale + column.shift for value in values)
    name = examples.features[place] if examples.features else f"x{place + 1}"
    return f"{name} {', '.join(f'{value:.4g}' for value in values)}"


def _copies(separated: Separated) -> tuple[Table, ...]:
    groups = {
        "Contradicting labels: the same input, different classes": separated.contradictions,
        "Different classes that differ only in what no perturbation may change": separated.apart_in_fixed,
        "Copies: the same input and class": separated.copies,
    }
    return tuple(
        Table(
            title,
            ("rows", "classes"),
            tuple(_copy(separated, rows) for rows in listed[:_GROUPS]),
            f"{len(listed):,} groups in all; separation.json has every one." if len(listed) > _GROUPS else "",
        )
        for title, listed in groups.items()
        if listed
    )


def _copy(separated: Separated, rows: list[int]) -> tuple[str, str]:
    shown = ", ".join(str(separated.row(row)) for row in rows[:_GROUPS]) + (" ..." if len(rows) > _GROUPS else "")
    return shown, ", ".join(dict.fromkeys(separated.class_of(row) for row in rows))


def _remarks(separated: Separated) -> tuple[Remark, ...]:
    remarks = []
    if separated.contradictions:
        count = sum(map(len, separated.contradictions))
        remarks.append(
            Remark(
                f"{count:,} rows have the input of a row of another class.",
                "contradicting labels",
                "bad",
                f"{len(separated.contradictions):,} groups of rows; no radius above 0 is admissible for "
                "them, and no classifier is right on all of them; check their labels",
            )
        )
    if separated.apart_in_fixed:
        remarks.append(
            Remark(
                f"{sum(map(len, separated.apart_in_fixed)):,} rows differ from one of another class only in features "
                "that no perturbation may change.",
                "distance 0",
                "doubtful",
                "a network can tell them apart, but the distance between them is 0 in all that may change",
            )
        )
    if separated.copies:
        count = sum(len(rows) - 1 for rows in separated.copies)
        remarks.append(
            Remark(
                f"{count:,} rows repeat another of their class.",
                "copies",
                "doubtful",
                "some may fall into the test split and be counted as right although they were trained on",
            )
        )
    return tuple(remarks)


def _histograms(separated: Separated) -> Picture:
    figure, (line,) = panels(1, len(separated.norms), size=3.4)
    for panel, (norm, separation) in zip(line, separated.norms.items(), strict=True):
        panel.hist(separation.distances, bins=bin_edges(separation.distances, 60), color=COLOURS[0])
        for share in _SHARES[1:]:
            panel.axvline(2 * separation.radius(share), color=COLOURS[1], linewidth=1.2, linestyle="dashed")
        panel.set_xlabel(f"{norm} distance")
    line[0].set_ylabel("examples")
    return Picture(
        "distances",
        figure,
        f"Distance of each example to the nearest one of another class, in {separated.units}; dashed: 1 % and 5 % of "
        "the examples are nearer than that.",
    )


def _images(separated: Separated) -> Picture:
    """A column for each pair, for each norm two lines."""
    pairs = {norm: separation.closest(_PAIRS, separated.first) for norm, separation in separated.norms.items()}
    figure, grid = panels(2 * len(pairs), max(map(len, pairs.values())), size=1.3)
    for axes in (panel for line in grid for panel in line):
        axes.axis("off")
    for place, (norm, closest) in enumerate(pairs.items()):
        for column, (one, two, distance) in enumerate(closest):
            for line, row in enumerate((one, two)):
                panel = grid[2 * place + line][column]
                panel.axis("on")
                bare(panel)
                image = separated.examples[row : row + 1][0][0].permute(1, 2, 0).numpy()
                panel.imshow(image if image.shape[2] == 3 else image[..., 0], cmap="gray", vmin=0, vmax=1)
                panel.set_xlabel(f"{separated.class_of(row)}", fontsize=7, labelpad=1, parse_math=False)
                if line == 0:
                    panel.set_title(f"{norm} {distance:.3g}", fontsize=7, pad=2)
    return Picture(
        "pairs", figure, "The closest pairs of different classes, one above the other: their distance and classes."
    )
