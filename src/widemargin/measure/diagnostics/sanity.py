"""Sanity checks of the input to an audit: logits, deterministic, in eval mode, points inside the box."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from widemargin.data.dataset import Examples
from widemargin.measure.accuracy import BATCH_SIZE, fraction, iter_batches
from widemargin.measure.diagnostics.finding import FLAT, Finding, Verdict, graded
from widemargin.measure.diagnostics.observe import ROUNDING, observed, raw_answers, state_kept
from widemargin.perturb.balls import Ball
from widemargin.uncertainty.network import Network, in_eval_mode

_LEAST_SHARE_OF_BOX = 0.1


def probabilities(network: Network, examples: Examples) -> Finding:
    """Rows that are shares of 1: their softmax is nearly uniform, so every loss is nearly flat.

    Log-probabilities are valid logits.
    """
    with observed(network), torch.no_grad():
        raw = torch.cat([raw_answers(network, inputs) for _, inputs, _ in iter_batches(examples, BATCH_SIZE)], 1)
    near = max(1e-4, 4 * raw.shape[-1] * torch.finfo(raw.dtype).eps)
    shares = ((raw >= 0) & (raw <= 1)).all(-1) & ((raw.sum(-1) - 1).abs() < near)
    logs = bool(((raw <= near) & (raw.logsumexp(-1, keepdim=True).abs() < near)).all())
    worst = float(shares.double().mean(1).max())
    kind = "log-probabilities, which are valid logits" if logs else "logits"
    return Finding(
        "probabilities",
        graded(worst, FLAT),
        f"of the member that does so most, {worst:.1%} of {raw.shape[1]} outputs are probabilities"
        if worst
        else f"all {raw.shape[1]} outputs are {kind}, from {float(raw.min()):.4g} to {float(raw.max()):.4g}",
        "remove the network's softmax: it must answer with logits" if worst > FLAT[0] else "",
        {"share": worst, "lowest": float(raw.min()), "highest": float(raw.max())},
    )


def randomness(network: Network, examples: Examples) -> Finding:
    """Two passes in eval mode, of the members and of their mean."""
    with observed(network), torch.no_grad():
        differences, changed = [], []
        for _, inputs, _ in iter_batches(examples, BATCH_SIZE):
            first, second = raw_answers(network, inputs), raw_answers(network, inputs)
            scale = first.abs().amax((0, 2)).clamp_min(torch.finfo(first.dtype).tiny)
            differences.append((first - second).abs().amax((0, 2)) / scale)
            changed.append(network(inputs).argmax(-1) != network(inputs).argmax(-1))
    difference, moved = torch.cat(differences), fraction(torch.cat(changed))
    largest, touched = float(difference.max()), fraction(~(difference <= ROUNDING))
    verdict: Verdict = "wrong" if moved else "suspicious" if touched else "fine"
    return Finding(
        "randomness",
        verdict,
        f"between two passes the outputs differ on {touched:.1%} of {len(difference)} points, by up to {largest:.3g} "
        f"of their size, and the class changes on {moved:.1%}",
        ""
        if verdict == "fine"
        else "judge it by the mean over many fixed draws (MCDropout has them), and attack that mean",
        {"share": touched, "share_class_changes": moved, "largest": largest},
    )


def modes(network: Network, examples: Examples) -> Finding:
    """Layers that would behave otherwise in eval mode, as the network was handed over.

    Everything here is measured in eval mode all the same; other programs may not see to that.
    """
    active = [name for name, module in network.named_modules() if _active(module)]
    always = [name for name, module in network.named_modules() if _without_statistics(module)]
    inputs, _ = examples[torch.arange(min(len(examples), BATCH_SIZE))]
    difference = 0.0
    # Batch-norm in train mode refuses a single point.
    if (network.training or active) and len(inputs) > 1:
        with state_kept(network), torch.no_grad():
            handed_over = network(inputs).exp()
            with in_eval_mode(network):
                difference = float((handed_over - network(inputs).exp()).abs().max())
    changes = difference > ROUNDING
    verdict: Verdict = "wrong" if always or changes else "suspicious" if active else "fine"
    said = [f"in train mode: {', '.join(active)}"] if active else ["no dropout or batch-norm is in train mode"]
    said += [f"batch-norm without running statistics, whose answer depends on the batch: {', '.join(always)}"] * (
        len(always) > 0
    )
    said.append(f"probabilities differ from those in eval mode by up to {difference:.3g}")
    return Finding(
        "modes",
        verdict,
        "; ".join(said),
        "" if verdict == "fine" else "call network.eval() first, and give batch-norm running statistics",
        {"layers": len(active), "without_statistics": len(always), "largest": difference},
    )


def inputs_in_box(examples: Examples, ball: Ball) -> Finding:
    """Points outside the box, or a box of which they use a small part only: pixels in 0..255 and in 0..1 mixed up."""
    points = torch.cat([inputs for _, inputs, _ in iter_batches(examples, BATCH_SIZE)])
    # Features that are held fixed are inputs too.
    down, up = ball.box.holding(()).room(points)
    width = (up - down).expand_as(points)
    outside = fraction(~((down <= 1e-6) & (up >= -1e-6) & points.isfinite()).flatten(1).all(1))
    low, high = float(points.min()), float(points.max())
    used = float("nan")
    if bool(width.isfinite().all()):
        at = -down / width
        # One interval for all features is used by all of them together; of many, each by its own feature.
        together = not isinstance(ball.box.low, tuple) and not isinstance(ball.box.high, tuple)
        used = float(at.max() - at.min()) if together else float((at.amax(0) - at.amin(0)).max())
    narrow = used < _LEAST_SHARE_OF_BOX
    verdict: Verdict = "wrong" if outside else "suspicious" if narrow else "fine"
    share = f"{outside:.1%} of {len(points)} points outside the box {ball.box.interval}"
    evidence = f"values from {low:.4g} to {high:.4g}, {share}"
    return Finding(
        "inputs in box",
        verdict,
        evidence + ("" if outside or math.isnan(used) else f", of which they use {used:.1%}"),
        "" if verdict == "fine" else "rescale the points to the box, or give the ball the box of valid inputs",
        {"share_outside": outside, "lowest": low, "highest": high, "share_used": used},
    )


def _active(module: nn.Module) -> bool:
    if isinstance(module, _DropoutNd):
        return module.training and module.p > 0
    return isinstance(module, _NormBase) and module.training and (_is_batch_norm(module) or module.track_running_stats)


def _without_statistics(module: nn.Module) -> bool:
    return isinstance(module, _NormBase) and _is_batch_norm(module) and module.running_mean is None


def _is_batch_norm(module: nn.Module) -> bool:
    # An instance norm without running statistics looks at one point at a time in either mode.
    return isinstance(module, nn.modules.batchnorm._BatchNorm)
