"""The result of an audit: what was found, point by point, and its summary."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemargin.auditing.config import AuditConfig
from widemargin.auditing.guarded import CHANGE, SHORTEST
from widemargin.measure.diagnostics import Finding
from widemargin.measure.distance import NO_ATTACK
from widemargin.measure.eot import Draws
from widemargin.measure.interval import Proportion, wilson

Array = NDArray[Any]
CategoryNames = tuple[tuple[str, tuple[str, ...]], ...]
"""Of each column that may change its name and those of its categories."""
FORMAT = 5
"""Of what is saved and of audit.json; a newer one begins anew."""


@dataclass(frozen=True)
class Contribution:
    """What one attack of an audit was run on, and what it broke there."""

    name: str
    run_on: int | None
    """Points on which it was run, in at least one ball; None if it failed on some, and in an audit of an earlier
    version."""
    broken: tuple[int, ...]
    """For every ball, the points that were first seen broken there by it: after the attacks before it had failed."""
    broken_alone: tuple[int, ...] | None
    """For every ball, the points that it breaks there without the others; None where that would take passes of its
    own, since it was run only on what the attacks before it had left."""


@dataclass(frozen=True, eq=False)
class Adversarial:
    """Points that are classified correctly, and for each the nearest place known where it is misclassified.

    The places are those of the minimum-norm attacks, at any distance.  In the order of the data.
    """

    norm: str
    rows: Array
    """Of the points, in the test part."""
    inputs: Array
    adversarial: Array
    labels: Array
    predictions: Array
    adversarial_predictions: Array
    distance: Array
    """In the norm."""
    radius: Array
    """The smallest audited radius that holds the place; infinite if none does."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def are_images(self) -> bool:
        return self.inputs.ndim == 4 and self.inputs.shape[1] in (1, 3)

    def nearest(self, most: int) -> Adversarial:
        """Those with the smallest distances, the nearest first."""
        order = np.argsort(self.distance, kind="stable")[:most]
        arrays = {one.name: getattr(self, one.name)[order] for one in fields(self) if one.name != "norm"}
        return Adversarial(self.norm, **arrays)


@dataclass(frozen=True, eq=False)
class Audit:
    """What was found, point by point; everything else follows from it."""

    name: str
    data: str
    classes: tuple[str, ...]
    config: AuditConfig
    attacks: tuple[str, ...]
    """Empty if nothing was attacked: then nothing is known of robustness."""
    points: dict[str, Array]
    """`row`, `label`, `answer`; `breaks` (from which ball on it is wrong) and `by` whom; how many attacks were `tried`
    within a ball; `margin`; `place` where it is wrong and the `way` there; `certified`, NaN where there is no
    certificate.  If categories may change, those of the point and of its place (`changed_from`, `changed_to`), by their
    numbers; ways and margins are then of numbers."""
    findings: tuple[Finding, ...]
    asked: int
    """How many points there should be; fewer if the time was up."""
    draws: Draws | None
    """None where nothing is drawn."""
    notes: tuple[str, ...]
    seconds: float
    adversarial: Adversarial | None = None
    """None if nothing was attacked."""
    left_out: tuple[str, ...] = ()
    """Names of the diagnoses for which there was no time."""
    failed: tuple[str, ...] = ()
    """Names of attacks that failed for some point: robust accuracy is said to be without them."""
    too_short: str = ""
    """If a budget was too short for a single point: what it should be."""
    digest: str = ""
    """Of the data."""
    features: tuple[str, ...] = ()
    """Names, if they have any."""
    test_digest: str = ""
    """Of the test part, from which the points are drawn."""
    categories: CategoryNames = ()
    """Of the columns whose category may change."""

    @property
    def n(self) -> int:
        return len(self.points["row"])

    @property
    def led(self) -> tuple[str, ...]:
        """The attacks that were led on every point that stood."""
        return tuple(name for name in self.attacks if name not in self.failed)

    @property
    def clean(self) -> Proportion:
        return wilson(int((self.points["answer"] == self.points["label"]).sum()), self.n)

    @property
    def robust(self) -> tuple[Proportion, ...]:
        if not self.attacks:
            return (Proportion(0, self.n, 0.0, 1.0),) * len(self.config.balls)
        return tuple(wilson(int((self.points["breaks"] > i).sum()), self.n) for i in range(len(self.config.balls)))

    @property
    def certified(self) -> tuple[Proportion, ...] | None:
        if bool(np.isnan(self.points["certified"]).any()):
            return None
        return tuple(
            wilson(int(((self.points["certified"] >= ball.radius) & self.right).sum()), self.n)
            for ball in self.config.balls
        )

    @property
    def is_proven(self) -> bool:
        """Whether robust accuracy is exact in every ball: each point is broken there or certified."""
        return is_proven(self.points, self.config)

    @property
    def right(self) -> Array:
        return np.asarray(self.points["answer"] == self.points["label"])

    @cached_property
    def broken_by(self) -> dict[str, list[int]]:
        """For every attack and ball, how many points were first seen broken there by it."""
        counts = {}
        for number, name in enumerate(self.attacks):
            is_by = self.points["by"] == number
            counts[name] = [int((is_by & (self.points["breaks"] == i)).sum()) for i in range(len(self.config.balls))]
        return counts

    @property
    def contributions(self) -> tuple[Contribution, ...]:
        """Of every attack, in the order in which they were run."""
        return tuple(
            Contribution(name, self._run_on(name), tuple(self.broken_by[name]), self._alone(name))
            for name in sorted(self.broken_by, key=turn_of)
        )

    def _run_on(self, name: str) -> int | None:
        number, within = self.attacks.index(name), self._within
        if name in self.failed:
            return None
        if name in (CHANGE, SHORTEST):
            return int(self.right.sum()) - (sum(self.broken_by.get(CHANGE, ())) if name == SHORTEST else 0)
        if number < within:
            return int((self.points["tried"] > number).sum()) if "tried" in self.points else None
        # What comes after all of them is run on the points that none of them broke.
        return int((self.points["breaks"] == len(self.config.balls)).sum()) + sum(self.broken_by[name])

    def _alone(self, name: str) -> tuple[int, ...] | None:
        # With changes of category they are not run on points that a change breaks.
        if name != SHORTEST or name in self.failed or "way" not in self.points or CHANGE in self.attacks:
            return None
        way = self.points["way"][self.right] * (1 - 1e-5)
        return tuple(int((way <= ball.radius).sum()) for ball in self.config.balls)

    @property
    def _within(self) -> int:
        """How many attacks search within a ball: they come first in `attacks`."""
        return self.attacks.index(SHORTEST) if SHORTEST in self.attacks else len(self.attacks)

    @property
    def fixed(self) -> tuple[str, ...]:
        """The features that nothing may change, by name or place."""
        places = self.config.balls[0].box.fixed
        return tuple(self.features[place] if self.features else str(place) for place in places)

    @property
    def changes(self) -> tuple[tuple[str, ...], ...]:
        """For every point the changes of category at its place, such as "colour: red -> blue"."""
        if "changed_to" not in self.points:
            return ((),) * self.n
        pairs = zip(self.points["changed_from"].tolist(), self.points["changed_to"].tolist(), strict=True)
        return tuple(
            tuple(
                f"{name}: {values[before]} -> {values[after]}"
                for (name, values), before, after in zip(self.categories, *pair, strict=True)
                if before != after
            )
            for pair in pairs
        )

    @property
    def norm(self) -> str:
        return self.config.balls[0].name

    def summary(self) -> dict[str, Any]:
        """All figures, with what it takes to trust and repeat them."""
        margin, certified = self.points["margin"], self.certified
        shares = (0.05, 0.25, 0.5, 0.75, 0.95)
        quantiles = {f"{share:g}": _plain(np.quantile(margin, share, method="inverted_cdf")) for share in shares}
        robust = [
            {
                "norm": self.norm,
                "eps": ball.radius,
                "accuracy": counted.fraction,
                "n": self.n,
                "low": counted.low,
                "high": counted.high,
                "attacks": list(self.led),
                "certified": None if certified is None else certified[i].fraction,
            }
            for i, (ball, counted) in enumerate(zip(self.config.balls, self.robust, strict=True))
            if self.attacks
        ]
        return {
            "version": FORMAT,
            "model": self.name,
            "data": self.data,
            "data_digest": self.digest,
            "test_digest": self.test_digest,
            "box": repr(self.config.balls[0].box),
            "classes": list(self.classes),
            "features": list(self.features),
            "fixed": list(self.fixed),
            **self._perturbed(),
            "n": self.n,
            "asked": self.asked,
            "seed": self.config.seed,
            "draws": None if self.draws is None else asdict(self.draws),
            "clean": self.clean.fraction,
            "clean_low": self.clean.low,
            "clean_high": self.clean.high,
            "robust": robust,
            "broken_by": self.broken_by,
            "attacks": [asdict(one) for one in self.contributions],
            "margin": {
                "norm": self.norm,
                "min": _plain(margin.min()),
                "mean": _plain(margin.mean()),
                "quantiles": quantiles,
                "unbroken": int(np.isinf(margin).sum()),
            },
            "findings": [
                {**asdict(finding), "numbers": {name: _plain(number) for name, number in finding.numbers.items()}}
                for finding in self.findings
            ],
            "findings_left_out": list(self.left_out),
            "notes": list(self.notes),
            "seconds": round(self.seconds, 1),
            "versions": {name: version(name) for name in ("widemargin", "torch", "numpy")},
        }

    def _perturbed(self) -> dict[str, Any]:
        """Nothing if no category may change, so that files stay as they were."""
        allowed = self.config.categories
        if allowed is None:
            return {}
        return {"perturbed_categories": [name for name, _ in self.categories], "category_changes": allowed.most}

    def per_point(self) -> list[dict[str, Any]]:
        """One plain row for every point."""
        names = ("row", "label", "answer", "breaks", "by", "margin", "certified")
        columns = [self.points[name].tolist() for name in names]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        radii = [*(ball.radius for ball in self.config.balls), None]
        for row in rows:
            row["by"] = None if row["by"] == NO_ATTACK else self.attacks[row["by"]]
            row["breaks"] = radii[row["breaks"]] if self.attacks else None
            row["margin"], row["certified"] = _plain(row["margin"]), _plain(row["certified"])
        if self.config.categories is not None:
            for row, changes in zip(rows, self.changes, strict=True):
                row["changes"] = list(changes)
        return rows


def turn_of(name: str) -> int:
    """Changes of category and attacks without a radius are run first, since what they find counts in every ball."""
    return {CHANGE: 0, SHORTEST: 1}.get(name, 2)


def is_proven(points: dict[str, Array], config: AuditConfig) -> bool:
    """Whether in every ball each point is known to be broken or certified to stand."""
    # NaN, where there is no certificate, certifies nothing.
    return all(
        bool((points["certified"][points["breaks"] > i] >= ball.radius).all()) for i, ball in enumerate(config.balls)
    )


def _plain(number: float) -> float | None:
    """JSON has no infinity and no NaN."""
    return float(number) if np.isfinite(number) else None
