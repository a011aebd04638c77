"""The page of a calibration: tables, a reliability diagram, histograms of uncertainty; and the same as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from widemargin.measure.calibration import Calibration, Detection, UncertaintyReport, UncertaintyScores
from widemargin.report.document import Picture, Report
from widemargin.report.figures import COLOURS, Array, bin_edges, draw_reliability, panels
from widemargin.report.tables import Table

_LOGS = ("entropy", "mutual information", "expected entropy", "variation ratio")
"""Their scores are logs, for the sake of ranks; people read the values."""
_IN_A_LINE = 3
"""Histograms side by side: more would not fit a page."""
DEFINITIONS = {
    "ECE": "expected calibration error: the difference of accuracy and confidence, averaged over the predictions.",
    "NLL": "mean negative log-likelihood of the labels, in nats.",
    "Brier": "squared distance of the probabilities to the label, 0 to 2.",
    "AUROC": "how often a misclassified or out-of-distribution example has the higher uncertainty; .5 is chance.",
    "confidence": "the probability that the network gives to the class that it predicts.",
    "entropy": "of the mean prediction, in nats.",
    "mutual information": "entropy of the mean prediction minus expected entropy: how much the members disagree.",
    "expected entropy": "the mean of the members' entropies.",
    "variation ratio": "1 - max softmax probability.",
    "gap": "top-2 log-probability margin: the difference of the two largest.",
}


@dataclass(frozen=True, eq=False)
class Rescaled:
    """Calibration after the logits were scaled, and how they were."""

    name: str
    calibration: Calibration


@dataclass(frozen=True, eq=False)
class Calibrated:
    """An uncertainty report, and of which model on which dataset it is."""

    name: str
    digest: str
    """Of the weights."""
    data: str
    report: UncertaintyReport
    """Of the network as it was trained."""
    notes: tuple[str, ...] = ()
    scaled: Rescaled | None = None

    @property
    def calibration(self) -> Calibration:
        """As the network predicts now."""
        return self.report.calibration if self.scaled is None else self.scaled.calibration

    def summary(self) -> dict[str, Any]:
        """For calibration.json."""
        calibration = self.calibration
        bins = {name: [None if np.isnan(v) else v for v in values] for name, values in _bins(calibration).items()}
        return {
            "model": self.name,
            "digest": self.digest,
            "data": self.data,
            "n": calibration.n,
            "members": self.report.calibration.members,
            "accuracy": calibration.accuracy,
            "accuracy_low": calibration.interval.low,
            "accuracy_high": calibration.interval.high,
            **_errors(calibration),
            "bins": bins,
            "scaling": None if self.scaled is None else self.scaled.name,
            "unscaled": None if self.scaled is None else _errors(self.report.calibration),
            "auroc": {name: _aurocs(detection) for name, detection in self.report.by.items()},
            "notes": list(self.notes),
        }


def _errors(calibration: Calibration) -> dict[str, float]:
    return {"ece": calibration.ece, "nll": calibration.nll, "brier": calibration.brier}


def page(calibrated: Calibrated) -> Report:
    scores, members = calibrated.calibration, calibrated.report.calibration.members
    over = _overconfidence(scores)
    # A mean confidence within the interval of the accuracy says nothing; also where all or none are correct.
    accuracy = scores.interval
    clear = not accuracy.low <= scores.accuracy + over <= accuracy.high
    sign = ("overconfident" if over > 0 else "underconfident") if clear else "neither over- nor underconfident"
    summary = (
        f"Of {scores.n:,} test examples of {calibrated.data}, {100 * scores.accuracy:.1f} % "
        f"[{100 * accuracy.low:.1f}, {100 * accuracy.high:.1f}] are classified "
        f"correctly, and the mean confidence is {100 * (scores.accuracy + over):.1f} %: {sign} on the whole."
    )
    if calibrated.scaled is not None:
        before, after = calibrated.report.calibration, calibrated.scaled.calibration
        summary += (
            f" Its logits are scaled ({calibrated.scaled.name}): on these examples ECE went from {before.ece:.4f} to "
            f"{after.ece:.4f}, NLL from {before.nll:.4f} to {after.nll:.4f}, Brier from {before.brier:.4f} to "
            f"{after.brier:.4f}."
        )
        if after.nll > before.nll:
            summary += (
                " That is worse: the validation split that it was fitted to is distributed otherwise. Delete "
                "scaling.json to undo it."
            )
    of_whom = "one network" if members == 1 else f"mean probability of {members} members"
    settings = (
        f"95 % Wilson interval of the accuracy; ECE in {len(scores.bins.count)} bins of equal width; Brier score "
        "summed over classes; AUROC by scikit-learn; "
        f"{of_whom}. {' '.join(calibrated.notes)}"
    )
    return Report(
        f"Calibration of {calibrated.name}",
        summary,
        settings.strip(),
        (),
        _tables(calibrated),
        (_histograms(calibrated),),
        lead=_reliability(calibrated),
        definitions=DEFINITIONS,
    )


def _overconfidence(scores: Calibration) -> float:
    filled = scores.bins.count > 0
    return float((scores.bins.confidence[filled] * scores.bins.count[filled]).sum() / scores.n) - scores.accuracy


def _bins(scores: Calibration) -> dict[str, list[float]]:
    bins = scores.bins
    return {name: getattr(bins, name).tolist() for name in ("edges", "count", "confidence", "accuracy")}


def _aurocs(detection: UncertaintyScores) -> dict[str, Any]:
    return {
        "wrong from right": _to_dict(detection.misclassification_detection),
        **{f"{name} from inside": _to_dict(separation) for name, separation in detection.ood_detection.items()},
    }


def _to_dict(separation: Detection | None) -> dict[str, Any] | None:
    if separation is None:
        return None
    return {"auroc": separation.auroc, "suspects": separation.positives, "others": separation.negatives}


def _tables(calibrated: Calibrated) -> tuple[Table, ...]:
    scores, by = calibrated.report.calibration, calibrated.report.by
    first = next(iter(by.values()))
    answers = [("as trained", scores)]
    if calibrated.scaled is not None:
        answers.append((calibrated.scaled.name, calibrated.scaled.calibration))
    rows = tuple(
        (
            name,
            "not defined"
            if detection.misclassification_detection is None
            else f"{detection.misclassification_detection.auroc:.3f}",
            *(f"{separation.auroc:.3f}" for separation in detection.ood_detection.values()),
        )
        for name, detection in by.items()
    )
    elsewhere = "".join(f"; {len(values):,} of {name}" for name, values in first.ood.items())
    return (
        Table(
            "Accuracy and calibration",
            ("logits", "n", "members", "accuracy %", "95 % interval", "ECE", "NLL", "Brier"),
            tuple(
                (
                    name,
                    f"{one.n:,}",
                    str(scores.members),
                    f"{100 * one.accuracy:.2f}",
                    f"{100 * one.interval.low:.1f} to {100 * one.interval.high:.1f}",
                    *(f"{value:.4f}" for value in _errors(one).values()),
                )
                for name, one in answers
            ),
        ),
        Table(
            "AUROC of each measure of uncertainty",
            ("measure", "misclassification detection", *(f"OOD detection, {name}" for name in first.ood)),
            rows,
            "1: higher for every misclassified or out-of-distribution example; 0.5: no better than chance. "
            f"{len(first.misclassified):,} misclassified and {len(first.correct):,} correct{elsewhere}."
            + (
                " A single network has no mutual information, and its expected entropy is its entropy."
                * (scores.members == 1)
            )
            + " Before scaling." * (calibrated.scaled is not None),
        ),
    )


def _reliability(calibrated: Calibrated) -> Picture:
    scores, scaled = calibrated.report.calibration, calibrated.scaled
    shown = [("as trained, " if scaled else "", scores)]
    if scaled is not None:
        shown.append((f"{scaled.name}, ", scaled.calibration))
    figure, (line,) = panels(1, len(shown), size=4.2)
    for panel, (name, one) in zip(line, shown, strict=True):
        draw_reliability(panel, one.bins)
        panel.set_title(f"{name}ECE {one.ece:.3f}", fontsize=10)
    return Picture(
        "reliability",
        figure,
        f"Accuracy over confidence of {scores.n:,} test examples; numbers say how many examples a bin holds. On the "
        "dashed line accuracy equals confidence; below it the network is overconfident.",
    )


def _histograms(calibrated: Calibrated) -> Picture:
    by = calibrated.report.by
    columns = min(len(by), _IN_A_LINE)
    figure, grid = panels(-(-len(by) // columns), columns, size=3.0)
    places = [panel for line in grid for panel in line]
    for panel in places[len(by) :]:
        panel.set_axis_off()
    for panel, (name, detection) in zip(places, by.items(), strict=False):
        groups = {"correct": detection.correct, "misclassified": detection.misclassified, **detection.ood}
        shown = {group: _readable(name, values) for group, values in groups.items() if len(values)}
        edges = bin_edges(np.concatenate(list(shown.values())), 30)
        for colour, (group, values) in zip(cycle(COLOURS), shown.items(), strict=False):
            weights = np.full(len(values), 1 / len(values))
            panel.hist(values, edges, weights=weights, histtype="step", color=colour, linewidth=1.4, label=group)
        panel.set_title(name if name != "gap" else "gap (large: confident)", fontsize=10)
        panel.set_yscale("log")
    for line in grid:
        line[0].set_ylabel("fraction")
    # Beside the panels: inside, some curve always runs under it.
    legend = figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    for text in legend.get_texts():
        # A data set may be called by what would be a formula.
        text.set_parse_math(False)
    outside = "".join(f", {name}" for name in next(iter(by.values())).ood)
    return Picture(
        "uncertainty",
        figure,
        f"Uncertainty of correct and misclassified examples on {calibrated.data}{outside}: fractions of each "
        "group, on a log scale. Entropies and mutual information in nats; variation ratio is 1 - max softmax "
        "probability; gap is the top-2 log-probability margin.",
    )


def _readable(name: str, scores: Array) -> Array:
    return np.asarray(np.exp(scores) if name in _LOGS else -scores)
