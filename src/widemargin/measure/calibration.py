"""Calibration (ECE, NLL, Brier score), and detection of misclassified and out-of-distribution examples (AUROC)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemargin.data.dataset import Examples
from widemargin.data.optional import import_optional
from widemargin.measure.accuracy import BATCH_SIZE, Mask, iter_batches
from widemargin.measure.interval import Proportion, wilson
from widemargin.shapes import Labels, MemberLogits, PerSample
from widemargin.uncertainty.network import Network, check_alone, in_eval_mode
from widemargin.uncertainty.predictive import (
    log_entropy,
    log_expected_entropy,
    log_mean_prob,
    log_mutual_information,
    log_variation_ratio,
    top_two_gap,
)

Array = NDArray[Any]
Uncertainty = Callable[[MemberLogits], PerSample]
"""Logits of M members -> the uncertainty of each point, on any increasing scale: only ranks are used."""

BINS = 15


def gap(logits: MemberLogits) -> PerSample:
    """Minus the difference of the two largest log-probabilities."""
    return -top_two_gap(log_mean_prob(logits))


# Logs keep the ranks, and do not underflow to ties where the network is very confident.
UNCERTAINTIES: Mapping[str, Uncertainty] = {
    "entropy": log_entropy,
    "mutual information": log_mutual_information,
    "expected entropy": log_expected_entropy,
    "variation ratio": log_variation_ratio,
    "gap": gap,
}
"""By name; variation ratio is 1 - max p.  Mutual information needs two members or more."""


@dataclass(frozen=True, eq=False)
class Bins:
    """Predictions by confidence, the probability of the predicted class, in bins of equal width.

    Bin k holds confidences in (k / bins, (k + 1) / bins]; the mean confidence and the accuracy of an empty one are NaN.
    """

    count: Array
    confidence: Array
    accuracy: Array

    @property
    def n(self) -> int:
        return int(self.count.sum())

    @property
    def edges(self) -> Array:
        return _edges(len(self.count))

    @property
    def ece(self) -> float:
        """Expected calibration error (Naeini et al. 2015): |accuracy - confidence|, averaged over the predictions."""
        filled = self.count > 0
        errors = np.abs(self.accuracy - self.confidence)[filled]
        return float((errors * self.count[filled]).sum() / self.n)

    @property
    def mce(self) -> float:
        """Maximum calibration error: that of the worst bin, however few predictions it holds."""
        return float(np.nanmax(np.abs(self.accuracy - self.confidence)))


@dataclass(frozen=True, eq=False)
class Calibration:
    n: int
    members: int
    """Whose probabilities are averaged: networks of an ensemble, or draws."""
    accuracy: float
    nll: float
    brier: float
    """Squared distance to the one-hot label, summed over classes (Brier 1950): 0 at best, 2 at worst."""
    bins: Bins

    @property
    def ece(self) -> float:
        return self.bins.ece

    @property
    def interval(self) -> Proportion:
        """Of the accuracy, 95 % (Wilson): not empty where all examples are correct, or none."""
        return wilson(round(self.accuracy * self.n), self.n)


@dataclass(frozen=True)
class Detection:
    """How well a score separates positives from negatives: AUROC 1 if it is higher for all of them, 0.5 for chance."""

    auroc: float
    positives: int
    """Misclassified or out-of-distribution examples."""
    negatives: int
    members: int

    @property
    def n(self) -> int:
        return self.positives + self.negatives


def calibration(network: Network, examples: Examples, bins: int = BINS, batch_size: int = BATCH_SIZE) -> Calibration:
    """Of the members' mean probability.  The network is unchanged.

    Likelihood and Brier score are a line each: scikit-learn's log_loss clips at 1e-16, so a network that is confident
    and wrong would look better than it is, and its Brier score is for two classes only before version 1.7.
    """
    return calibration_of(member_logits(network, examples, batch_size), examples.labels.cpu(), bins)


def calibration_of(logits: MemberLogits, labels: Labels, bins: int = BINS) -> Calibration:
    """Of logits that are known already."""
    log_probs = log_mean_prob(logits)
    probs = log_probs.exp()
    confidence, predicted = probs.max(-1)
    truth = torch.nn.functional.one_hot(labels, probs.shape[1])
    correct = predicted == labels
    return Calibration(
        len(labels),
        len(logits),
        float(correct.double().mean()),
        float(-log_probs.gather(1, labels.unsqueeze(1)).mean()),
        float((probs - truth).square().sum(1).mean()),
        reliability(confidence.numpy(), correct.numpy(), bins),
    )


def reliability(confidence: Array, correct: Array, bins: int = BINS) -> Bins:
    """Of any predictions: their confidence in [0, 1], and whether they are correct."""
    if bins < 1:
        raise ValueError(f"bins must be a whole number of at least 1, got {bins}")
    if confidence.ndim != 1 or confidence.shape != correct.shape or len(confidence) == 0:
        raise ValueError(f"there must be one confidence for each answer, got {confidence.shape} and {correct.shape}")
    # A mean of probabilities may round to a little more than 1.
    if not ((confidence >= 0) & (confidence <= 1 + 1e-6)).all():
        raise ValueError("confidences must be probabilities in [0, 1], got others")
    row = np.digitize(confidence, _edges(bins)[1:-1], right=True)
    count = np.bincount(row, minlength=bins)
    with np.errstate(invalid="ignore"):
        means = [np.bincount(row, values, bins) / count for values in (confidence, correct.astype(float))]
    return Bins(count, *means)


def uncertainty(
    network: Network, examples: Examples, measure: Uncertainty = log_entropy, batch_size: int = BATCH_SIZE
) -> PerSample:
    """The uncertainty of each example, in double precision.  The network is unchanged."""
    return measure(member_logits(network, examples, batch_size))


def misclassification_detection(network: Network, examples: Examples, measure: Uncertainty = log_entropy) -> Detection:
    """How well the uncertainty separates misclassified from correct examples."""
    logits = member_logits(network, examples)
    wrong = log_mean_prob(logits).argmax(-1) != examples.labels.cpu()
    if not wrong.any() or wrong.all():
        raise ValueError(
            f"there must be right and wrong answers to tell apart, got {int(wrong.sum())} wrong of {len(wrong)}"
        )
    return _detection(measure(logits), wrong, len(logits))


def ood_detection(
    network: Network, inside: Examples, outside: Examples, measure: Uncertainty = log_entropy
) -> Detection:
    """How well the uncertainty separates out-of-distribution examples, whose labels are not read, from others."""
    in_distribution, ood = member_logits(network, inside), member_logits(network, outside)
    scores = torch.cat([measure(in_distribution), measure(ood)])
    return _detection(scores, torch.arange(len(scores)) >= in_distribution.shape[1], len(in_distribution))


@dataclass(frozen=True, eq=False)
class UncertaintyScores:
    """One measure of uncertainty on an increasing scale: its values, and what it detects."""

    correct: Array
    """Of every test example that is classified correctly."""
    misclassified: Array
    ood: Mapping[str, Array]
    """Of every out-of-distribution example, by the name of its dataset."""
    misclassification_detection: Detection | None
    """None if all answers are correct, or none."""
    ood_detection: Mapping[str, Detection]


@dataclass(frozen=True, eq=False)
class UncertaintyReport:
    """Calibration, and for every measure of uncertainty its scores and what it detects."""

    calibration: Calibration
    by: Mapping[str, UncertaintyScores]


def uncertainty_report(network: Network, inside: Examples, outside: Mapping[str, Examples]) -> UncertaintyReport:
    """One forward pass for every example.  With one member, without mutual information, which is 0, and expected
    entropy, which is its entropy."""
    ood = {name: member_logits(network, examples) for name, examples in outside.items()}
    return uncertainty_report_of(member_logits(network, inside), inside.labels.cpu(), ood)


def uncertainty_report_of(logits: MemberLogits, labels: Labels, ood: Mapping[str, Tensor]) -> UncertaintyReport:
    """The same of logits that are known already."""
    wrong = log_mean_prob(logits).argmax(-1) != labels
    measures = {
        name: measure
        for name, measure in UNCERTAINTIES.items()
        if len(logits) > 1 or name not in ("mutual information", "expected entropy")
    }
    return UncertaintyReport(
        calibration_of(logits, labels),
        {name: _scores(measure, logits, ood, wrong) for name, measure in measures.items()},
    )


def _scores(measure: Uncertainty, logits: MemberLogits, ood: Mapping[str, Tensor], wrong: Mask) -> UncertaintyScores:
    inside, members = measure(logits), len(logits)
    outside = {name: measure(values) for name, values in ood.items()}
    return UncertaintyScores(
        inside[~wrong].numpy(),
        inside[wrong].numpy(),
        {name: values.numpy() for name, values in outside.items()},
        _detection(inside, wrong, members) if wrong.any() and not wrong.all() else None,
        {
            name: _detection(
                torch.cat([inside, values]), torch.arange(len(inside) + len(values)) >= len(inside), members
            )
            for name, values in outside.items()
        },
    )


def member_logits(network: Network, examples: Examples, batch_size: int = BATCH_SIZE) -> MemberLogits:
    """Of all examples, in double precision: calibration depends on probabilities near 1."""
    check_alone(network, "calibration")
    with torch.no_grad(), in_eval_mode(network):
        batches = [network.logits(network.encode(inputs)) for _, inputs, _ in iter_batches(examples, batch_size)]
    logits = torch.cat(batches, 1).double().cpu()
    if not logits.isfinite().all():
        raise ValueError("the network must return finite logits to be calibrated, got NaN or infinity")
    return logits


def _detection(scores: PerSample, positive: Mask, members: int) -> Detection:
    metrics = import_optional("sklearn.metrics", "'widemargin[sklearn]'", "the area under a ROC curve")
    auroc = float(metrics.roc_auc_score(positive.numpy(), scores.numpy()))
    return Detection(auroc, int(positive.sum()), int((~positive).sum()), members)


def _edges(bins: int) -> Array:
    return np.linspace(0, 1, bins + 1)
