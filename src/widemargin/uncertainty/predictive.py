"""The mean prediction of M members, and measures of its uncertainty; in log space, stable for any logits."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from widemargin.shapes import LogProbs, MemberLogits, PerSample

# Below this probability q, log(-log(1 - q)) is log q + q / 2 to float precision.
_LOG_SMALL = -10.0
_LOG_NOTHING = -1e6


def log_mean_prob(logits: MemberLogits) -> LogProbs:
    """Log of the members' average softmax (the paper's y-hat): valid logits again."""
    log_probs = logits.log_softmax(-1)
    return log_probs[0] if len(logits) == 1 else log_probs.logsumexp(0) - math.log(len(logits))


def entropy(log_probs: Tensor) -> Tensor:
    """eq. (E), over the last axis."""
    return -(log_probs.exp() * log_probs).sum(-1)


def log_entropy(logits: MemberLogits) -> PerSample:
    """log of eq. (E): same maximisers and gradient signs, but finite where the entropy itself has underflowed."""
    return _LogEntropy.apply(logits)  # type: ignore[no-any-return, no-untyped-call]


def log_entropy_by_autograd(log_probs: LogProbs) -> PerSample:
    """The slow, obvious twin, from log-mean-probabilities: log H = logsumexp over classes of (log p + log(-log p))."""
    return (log_probs + _log_surprise(log_probs)).logsumexp(-1)


class _LogEntropy(torch.autograd.Function):
    """The same with its gradient in closed form.

    With S = -log of the mean probability, p one member's and H the entropy, dH / dlogit_j = p_j (S_j - sum p S) / M:
    every factor is taken as a log and divided by H before it can underflow.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        member = logits.log_softmax(-1)
        mean = member[0] if len(member) == 1 else member.logsumexp(0) - math.log(len(member))
        weighted = member + _log_surprise(mean)
        cross = weighted.logsumexp(-1, keepdim=True)
        log_h = cross[0] if len(member) == 1 else cross.logsumexp(0) - math.log(len(member))
        ctx.save_for_backward(((weighted - log_h).exp() - (member + (cross - log_h)).exp()) / len(member))
        return log_h.squeeze(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        return gradient.unsqueeze(-1) * slope  # type: ignore[no-any-return]


def _log_surprise(log_probs: LogProbs) -> LogProbs:
    """log(-log p).  The top class's p rounds to 1, so its -log p comes from the probability of all others."""
    top = log_probs.detach().argmax(-1, keepdim=True)
    log_others = log_probs.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)
    # The top entry is replaced before the log as well as after it, or its gradient would be 0 * inf.
    of_others = (-log_probs).scatter(-1, top, 1.0).log()
    return of_others.scatter(-1, top, _log_surprise_of_top(log_others))


def _log_surprise_of_top(log_others: Tensor) -> Tensor:
    """log(-log(1 - q)) from log q."""
    tiny = log_others < _LOG_SMALL
    # A where() sends gradients through both branches: keep the unused one finite.
    q = torch.where(tiny, _LOG_SMALL, log_others).exp()
    return torch.where(tiny, log_others + log_others.exp() / 2, (-torch.log1p(-q)).log())


def expected_entropy(logits: MemberLogits) -> PerSample:
    """Mean of the members' entropies (aleatoric uncertainty)."""
    return entropy(logits.log_softmax(-1)).mean(0)


def log_expected_entropy(logits: MemberLogits) -> PerSample:
    """Its log, log (1 / M) sum H_m: finite where all entropies have underflowed."""
    rows: Tensor = log_entropy(logits.flatten(0, 1).unsqueeze(0)).unflatten(0, logits.shape[:2])
    return rows[0] if len(logits) == 1 else rows.logsumexp(0) - math.log(len(logits))


def variation_ratio(logits: MemberLogits) -> PerSample:
    """1 - max p of the average prediction; Gal (2016, sec. 3.3) counts votes instead, which have no gradient."""
    return log_variation_ratio(logits).exp()


def log_variation_ratio(logits: MemberLogits) -> PerSample:
    """log(1 - max p) = logsumexp of the other classes' log p: nothing is subtracted from 1."""
    log_probs = log_mean_prob(logits)
    top = log_probs.detach().argmax(-1, keepdim=True)
    others: Tensor = log_probs.scatter(-1, top, -torch.inf).logsumexp(-1)
    return others


def mutual_information(logits: MemberLogits) -> PerSample:
    """The members' disagreement (BALD): entropy of the mean minus mean of the entropies."""
    return log_mutual_information(logits).exp()


def log_mutual_information(logits: MemberLogits) -> PerSample:
    """Log of the mean KL(member || average), summed from terms that are never negative: nothing cancels.

    KL = sum of p g(r) with r = log p - log p-average and g(r) = r - 1 + exp(-r), since the extra parts sum to 0.
    """
    if len(logits) < 2:
        raise ValueError("mutual information needs at least 2 members, got 1: use entropy, or an Ensemble")
    log_probs = logits.log_softmax(-1)
    mean = log_probs.logsumexp(0) - math.log(len(logits))
    # Where all are confident of one class, their log-probabilities of it round to 0: take them from the others'.
    top = mean.detach().argmax(-1, keepdim=True)
    of_top = _log_of_top(log_probs, top.expand(len(logits), -1, -1)) - _log_of_top(mean, top)
    ratio = (log_probs - mean).scatter(-1, top.expand(len(logits), -1, -1), of_top)
    return (log_probs + _log_g(ratio)).logsumexp((0, -1)) - math.log(len(logits))


def _log_of_top(log_probs: Tensor, top: Tensor) -> Tensor:
    """[..., 1]: the log-probability of a class, from that of all others where it is the likelier."""
    log_others = log_probs.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)
    likelier = log_others < -math.log(2)
    # A where() sends gradients through both branches: keep the unused one finite.
    from_others = torch.log1p(-torch.where(likelier, log_others, -1.0).exp())
    return torch.where(likelier, from_others, log_probs.gather(-1, top))


def _log_g(r: Tensor) -> Tensor:
    """log(r - 1 + exp(-r)) for any r, each range by the form that neither cancels nor overflows there."""
    near, below = r.abs() < 1e-2, r < -1.0
    # Members that agree to the last bit have g = 0: a log far below all others, yet finite.
    zero = r.abs() < torch.finfo(r.dtype).tiny
    small = torch.where(near & ~zero, r, 1e-3)
    negative = torch.where(below, r, -2.0)
    middle = torch.where(near | below, 1.0, r)
    series = 2 * small.abs().log() - math.log(2) + torch.log1p(-small / 3 + small**2 / 12)
    far_below = -negative + torch.log1p((negative - 1) * negative.exp())
    rest = torch.where(below, far_below, (middle + torch.expm1(-middle)).log())
    return torch.where(zero, _LOG_NOTHING, torch.where(near, series, rest))


def is_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Whether the argmax of the last axis is the label; NaN is not correct."""
    right = logits.argmax(-1) == labels
    if math.isfinite(float(logits.detach().sum())):
        # Nothing is odd: no need to look at each.
        return right
    return right & logits.isfinite().any(-1) & ~logits.isnan().any(-1)


def top_two_gap(log_probs: LogProbs) -> PerSample:
    """The difference of the two largest log-probabilities: 0 on the decision boundary."""
    first, second = log_probs.topk(2, -1).values.unbind(-1)
    return first - second
