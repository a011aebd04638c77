"""Diagnoses of gradients: vanishing, saturated or misleading ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from widemargin.data.dataset import Examples
from widemargin.measure.accuracy import BATCH_SIZE, fraction, iter_batches
from widemargin.measure.diagnostics.finding import FLAT, Finding, graded, worst_of
from widemargin.measure.diagnostics.observe import observed, raw_answers
from widemargin.perturb.attack import Classifier
from widemargin.perturb.balls import Ball
from widemargin.perturb.gradient import slope_or_flat
from widemargin.perturb.objectives import Objective, height, margin_loss, perturbed_loss
from widemargin.perturb.pgd import stepped
from widemargin.shapes import Encoded, Labels, LogProbs, PerSample, Points
from widemargin.uncertainty.network import Network

# Where a straight line would meet the boundary: so many diameters of the data away, it does not lead there.
_DIAMETERS = 100
_LENGTHS = (1.0, 0.25, 0.05)


def gradients(network: Network, examples: Examples) -> Finding:
    """Points at which no gradient leads anywhere.

    The margin of the logits has none (exactly 0, of the mean's answer or of a member's), or one so small that a
    straight line would meet the boundary a hundred diameters of the data away: the network is flat there.  Or the
    margin has one but cross-entropy's is less than a rounding error of it: 1 - p cannot be told from 0, softmax is
    saturated, and attacks on cross-entropy go wrong while those on the margin do not.
    """
    points = torch.cat([inputs for _, inputs, _ in iter_batches(examples, BATCH_SIZE)])
    diameter = float((points.amax(0) - points.amin(0)).norm())
    rows = []
    with observed(network):
        for _, inputs, labels in iter_batches(examples, BATCH_SIZE):
            margin, slope = _slope_of(network, inputs, labels, margin_loss)
            steepness, of_ce = _length(slope), _length(_slope_of(network, inputs, labels, perturbed_loss)[1])
            flat = ~(margin.abs() <= _DIAMETERS * max(diameter, 1e-30) * steepness)
            saturated = (steepness > 0) & (of_ce < torch.finfo(inputs.dtype).eps * steepness)
            members = [
                _length(_slope_of(_Member(network, m), inputs, labels, margin_loss)[1])
                for m in _members(network, inputs)
            ]
            of_member = (torch.stack(members) == 0).any(0)
            rows.append(torch.stack([steepness == 0, of_ce == 0, flat, saturated, of_member]))
    none, none_ce, flat_share, saturated_share, member = (fraction(row) for row in torch.cat(rows, 1).unbind())
    verdict = worst_of(graded(max(flat_share, member), FLAT), graded(saturated_share, (FLAT[0], 0.5)))
    advice = ""
    if verdict != "fine":
        advice = (
            "the network hides its gradients: attack without them (Square), by transfer, or through a smooth surrogate"
            if max(flat_share, member) > FLAT[0]
            else "cross-entropy is saturated: attack the margin or DLR, or compute in float64"
        )
    return Finding(
        "gradients",
        verdict,
        f"the margin's gradient is exactly 0 on {none:.1%} of {len(points)} points (a member's on {member:.1%}) and "
        f"next to 0 on {flat_share:.1%}; cross-entropy's is exactly 0 on {none_ce:.1%} and lost in rounding beside the "
        f"margin's on {saturated_share:.1%}",
        advice,
        {
            "share_zero_margin": none,
            "share_zero_member": member,
            "share_flat_margin": flat_share,
            "share_zero_cross_entropy": none_ce,
            "share_saturated": saturated_share,
        },
    )


def loss_surface(network: Network, examples: Examples, ball: Ball) -> Finding:
    """Points whose loss does not rise along its own gradient, whatever the length of the step (1, 1/4 or 1/20 radius).

    Training on uncertain points can flatten the loss around the data; so can saturation, which spares the margin.
    """
    rows, sure = [], []
    with observed(network):
        for _, inputs, labels in iter_batches(examples, BATCH_SIZE):
            rows.append(
                torch.stack([_stuck(network, inputs, labels, ball, loss) for loss in (perturbed_loss, margin_loss)])
            )
            with torch.no_grad():
                sure.append(network(inputs).amax(1).exp())
    stuck_ce, stuck_margin = (fraction(row) for row in torch.cat(rows, 1).unbind())
    confidence = float(torch.cat(sure).double().mean())
    # Where only cross-entropy is stuck, attacks on the margin still work.
    verdict = worst_of(graded(stuck_margin, FLAT), "suspicious" if stuck_ce > FLAT[1] else "fine")
    return Finding(
        "loss surface",
        verdict,
        f"along its own gradient cross-entropy does not rise on {stuck_ce:.1%} of {len(examples)} points and the "
        f"margin's loss not on {stuck_margin:.1%}; the mean confidence is {confidence:.4f}",
        ""
        if verdict == "fine"
        else "do not trust gradients alone: attack the margin from many starts, and with Square",
        {"share": stuck_ce, "share_margin": stuck_margin, "confidence": confidence},
    )


def _stuck(network: Network, inputs: Points, labels: Labels, ball: Ball, loss: Objective) -> Tensor:
    here, slope = _slope_of(network, inputs, labels, loss)
    stuck = torch.ones_like(labels, dtype=torch.bool)
    with torch.no_grad():
        for length in _LENGTHS:
            there = stepped(ball, inputs, inputs, slope, length * ball.radius)
            stuck &= ~(height(loss, network(there), labels) > here)
    return stuck


def _slope_of(classify: Classifier, inputs: Points, labels: Labels, loss: Objective) -> tuple[PerSample, Encoded]:
    return slope_or_flat(classify, inputs, partial(height, loss, labels=labels))


def _length(slope: Encoded) -> PerSample:
    # In double precision, so that the square of a tiny gradient does not underflow.
    return torch.linalg.vector_norm(slope.double().flatten(1), dim=1)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Member:
    """One member's raw answer."""

    network: Network
    number: int

    def __call__(self, inputs: Points) -> LogProbs:
        return raw_answers(self.network, inputs)[self.number]


def _members(network: Network, inputs: Points) -> range:
    with torch.no_grad():
        return range(len(raw_answers(network, inputs[:1])))
