"""What does a network's doubt tell?  Tables, a reliability diagram, histograms of uncertainty; and the same as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from widemargin.measure.calibration import Calibration, Detection, UncertaintyReport, UncertaintyScores
from widemargin.report.document import Picture, Report
from widemargin.report.figures import COLOURS, Array, draw_reliability, panels
from widemargin.report.tables import Table

_LOGS = ("entropy", "mutual information", "expected entropy", "variation ratio")
"""Their scores are logs, for the sake of ranks; people read the values."""


@dataclass(frozen=True, eq=False)
class Calibrated:
    """UncertaintyReport, of whom and on what."""

    name: str
    digest: str
    """Of the weights."""
    data: str
    doubts: UncertaintyReport
    notes: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """For calibration.json."""
        found = self.doubts.calibration
        bins = {name: [None if np.isnan(v) else v for v in values] for name, values in _bins(found).items()}
        return {
            "model": self.name,
            "digest": self.digest,
            "data": self.data,
            "n": found.n,
            "members": found.members,
            "accuracy": found.accuracy,
            "ece": found.ece,
            "nll": found.nll,
            "brier": found.brier,
            "bins": bins,
            "auroc": {name: _aurocs(doubt) for name, doubt in self.doubts.by.items()},
            "notes": list(self.notes),
        }


def page(found: Calibrated) -> Report:
    own = found.doubts.calibration
    over = _overconfidence(own)
    # A difference that is within two standard errors of the accuracy says nothing.
    clear = abs(over) > 2 * (own.accuracy * (1 - own.accuracy) / own.n) ** 0.5
    surer = ("surer than right" if over > 0 else "less sure than right") if clear else "about as sure as right"
    summary = (
        f"{found.name} on {found.data}: {100 * own.accuracy:.1f} % of {own.n:,} test examples are right, and its mean "
        f"confidence is {100 * (own.accuracy + over):.1f} %: {surer} on the whole."
    )
    members = "one network answers" if own.members == 1 else f"{own.members} members answer by their mean probability"
    settings = (
        f"ECE in {len(own.bins.count)} bins of equal width; Brier score summed over classes; AUROC by scikit-learn; "
        f"{members}. {' '.join(found.notes)}"
    )
    pictures = (_reliability(own), _histograms(found))
    return Report(f"Calibration of {found.name}", summary, settings.strip(), (), _tables(found), pictures)


def _overconfidence(own: Calibration) -> float:
    filled = own.bins.count > 0
    return float((own.bins.confidence[filled] * own.bins.count[filled]).sum() / own.n) - own.accuracy


def _bins(own: Calibration) -> dict[str, list[float]]:
    bins = own.bins
    return {name: getattr(bins, name).tolist() for name in ("edges", "count", "confidence", "accuracy")}


def _aurocs(doubt: UncertaintyScores) -> dict[str, Any]:
    return {
        "wrong from right": _told(doubt.misclassification_detection),
        **{f"{name} from inside": _told(separation) for name, separation in doubt.ood_detection.items()},
    }


def _told(separation: Detection | None) -> dict[str, Any] | None:
    if separation is None:
        return None
    return {"auroc": separation.auroc, "suspects": separation.positives, "others": separation.negatives}


def _tables(found: Calibrated) -> tuple[Table, ...]:
    own, by = found.doubts.calibration, found.doubts.by
    first = next(iter(by.values()))
    numbers = (own.accuracy, own.ece, own.nll, own.brier)
    rows = tuple(
        (
            name,
            "" if doubt.misclassification_detection is None else f"{doubt.misclassification_detection.auroc:.3f}",
            *(f"{separation.auroc:.3f}" for separation in doubt.ood_detection.values()),
        )
        for name, doubt in by.items()
    )
    elsewhere = "".join(f"; {len(values):,} of {name}" for name, values in first.ood.items())
    return (
        Table(
            "How right and how sure",
            ("n", "members", "accuracy %", "ECE", "NLL", "Brier"),
            ((f"{own.n:,}", str(own.members), f"{100 * numbers[0]:.2f}", *(f"{value:.4f}" for value in numbers[1:])),),
        ),
        Table(
            "What each measure of uncertainty tells apart (AUROC)",
            ("measure", "wrong from right", *(f"{name} from {found.data}" for name in first.ood)),
            rows,
            f"1: higher for every suspect; 0.5: it says nothing. {len(first.misclassified):,} wrong and "
            f"{len(first.correct):,} right answers{elsewhere}."
            + (" Of one member there is no mutual information, and expected entropy is entropy." * (own.members == 1)),
        ),
    )


def _reliability(own: Calibration) -> Picture:
    figure, ((panel,),) = panels(1, 1, size=4.2)
    draw_reliability(panel, own.bins)
    panel.set_title(f"ECE {own.ece:.3f}", fontsize=10)
    return Picture(
        "reliability",
        figure,
        f"Accuracy over confidence of {own.n:,} test examples; numbers say how many answers a bin holds. On the "
        "dashed line a network is as right as it is sure; below it, too sure.",
    )


def _histograms(found: Calibrated) -> Picture:
    by = found.doubts.by
    figure, (line,) = panels(1, len(by), size=3.0)
    for panel, (name, doubt) in zip(line, by.items(), strict=True):
        groups = {"right": doubt.correct, "wrong": doubt.misclassified, **doubt.ood}
        shown = {group: _readable(name, values) for group, values in groups.items() if len(values)}
        edges = np.histogram_bin_edges(np.concatenate(list(shown.values())), 30)
        for colour, (group, values) in zip(cycle(COLOURS), shown.items(), strict=False):
            weights = np.full(len(values), 1 / len(values))
            panel.hist(
                values, edges.tolist(), weights=weights, histtype="step", color=colour, linewidth=1.4, label=group
            )
        panel.set_title(name if name != "gap" else "gap (large: sure)", fontsize=10)
        panel.set_yscale("log")
    line[0].set_ylabel("share of the group")
    # Beside the panels: inside, some curve always runs under it.
    figure.legend(*line[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    outside = "".join(f", {name}" for name in next(iter(by.values())).ood)
    return Picture(
        "uncertainty",
        figure,
        f"Uncertainty of right and wrong answers on {found.data}{outside}: shares of each group, on a log scale. "
        "Entropies and mutual information in nats; variation ratio is 1 - the largest probability; gap is that of the "
        "two largest log-probabilities.",
    )


def _readable(name: str, scores: Array) -> Array:
    return np.asarray(np.exp(scores) if name in _LOGS else -scores)
