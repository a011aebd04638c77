"""Objectives: what a search or an attack climbs and training descends, per-sample numbers of a clean/perturbed pair."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from widemargin.data.checks import UNLABELLED
from widemargin.perturb import losses
from widemargin.shapes import Labels, LogProbs, MemberLogits, PerSample
from widemargin.uncertainty import predictive

_OFFSET = 1e-8


@dataclass(frozen=True)
class Pair:
    """A batch seen twice.  Lazy: a term pays only for the side it reads."""

    labels: Labels
    clean: Callable[[], MemberLogits]
    perturbed: Callable[[], MemberLogits]
    targets: Labels | None = None
    """Where a targeted objective goes."""


@dataclass(frozen=True)
class Term:
    name: str
    value: Callable[[Pair], PerSample]
    moves: bool = True
    """Does it change as the point moves?  If not, there is nothing to climb."""
    flat_at_center: bool = False
    """Is its gradient 0 at the clean point?  Then a search must not start there."""
    takes_unlabelled: bool = False
    """Is it right for rows that have UNLABELLED instead of a class?"""

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Objective:
    """A weighted sum of terms."""

    terms: tuple[tuple[float, Term], ...]

    @property
    def takes_unlabelled(self) -> bool:
        return all(term.takes_unlabelled for _, term in self.terms)

    def __call__(self, pair: Pair) -> PerSample:
        (first_weight, first), *rest = self.terms
        total = first.value(pair) if first_weight == 1 else first_weight * first.value(pair)
        for weight, term in rest:
            total = total + weight * term.value(pair)
        return total

    def __add__(self, other: Objective) -> Objective:
        return Objective(self.terms + other.terms)

    def __sub__(self, other: Objective) -> Objective:
        return self + -1.0 * other

    def __mul__(self, factor: float) -> Objective:
        if not (isinstance(factor, int | float) and math.isfinite(factor)):
            raise ValueError(f"an objective is multiplied by a finite Python number, got {factor!r}: call float()")
        return Objective(tuple((factor * weight, term) for weight, term in self.terms))

    __rmul__ = __mul__

    def __neg__(self) -> Objective:
        return -1.0 * self

    def __repr__(self) -> str:
        return " + ".join(str(term) if weight == 1 else f"{weight!r} * {term}" for weight, term in self.terms)


def height(climbed: Objective, logits: LogProbs, labels: Labels, targets: Labels | None = None) -> PerSample:
    """An objective of answers [B C] at perturbed points, where nothing is asked of the clean ones."""
    return climbed(Pair(labels, _unknown, lambda: logits.unsqueeze(0), targets))


def _unknown() -> MemberLogits:
    raise ValueError("an attack climbs objectives of perturbed points alone, got one that asks for the clean ones")


def objective(
    value: Callable[[Pair], PerSample],
    *,
    moves: bool = True,
    flat_at_center: bool = False,
    takes_unlabelled: bool = False,
) -> Objective:
    """Make an objective of a function of a pair; its name becomes the objective's."""
    return Objective(((1.0, Term(value.__name__, value, moves, flat_at_center, takes_unlabelled)),))


def _cross_entropy(logits: MemberLogits, labels: Labels) -> PerSample:
    # Averaged over members, not taken of their average: every member learns, and for draws of a posterior it is the
    # expected log-likelihood of the variational bound.
    if len(logits) == 1:
        # The same to the last bit, with fewer operations.
        return cross_entropy(logits.squeeze(0), labels, reduction="none")
    picked = logits.log_softmax(-1).gather(-1, labels.expand(len(logits), -1).unsqueeze(-1))
    return -picked.squeeze(-1).mean(0)


def _clean_loss(pair: Pair) -> PerSample:
    return _cross_entropy(pair.clean(), pair.labels)


def _perturbed_loss(pair: Pair) -> PerSample:
    return _cross_entropy(pair.perturbed(), pair.labels)


def _labelled_loss(pair: Pair) -> PerSample:
    known = pair.labels != UNLABELLED
    return _cross_entropy(pair.clean(), pair.labels.where(known, 0)).where(known, 0.0)


def _margin_loss(pair: Pair) -> PerSample:
    return -losses.margin(_whole_answer(pair.perturbed()), pair.labels)


def _dlr_loss(pair: Pair) -> PerSample:
    return losses.dlr(_whole_answer(pair.perturbed()), pair.labels)


def _targeted_dlr_loss(pair: Pair) -> PerSample:
    return losses.targeted_dlr(_whole_answer(pair.perturbed()), pair.labels, _targets(pair))


def _target_margin(pair: Pair) -> PerSample:
    return losses.towards(_whole_answer(pair.perturbed()), pair.labels, _targets(pair))


def _whole_answer(logits: MemberLogits) -> LogProbs:
    # Margins and their ratios do not change with a shift of all logits, so one member's are taken as they are.
    return logits.squeeze(0) if len(logits) == 1 else predictive.log_mean_prob(logits)


def _targets(pair: Pair) -> Labels:
    if pair.targets is None:
        raise ValueError("a targeted objective needs a target for every sample, got none: use a targeted attack")
    return pair.targets


def _clean_entropy(pair: Pair) -> PerSample:
    return predictive.entropy(predictive.log_mean_prob(pair.clean()))


def _perturbed_entropy(pair: Pair) -> PerSample:
    return predictive.entropy(predictive.log_mean_prob(pair.perturbed()))


def _perturbed_log_entropy(pair: Pair) -> PerSample:
    return predictive.log_entropy(pair.perturbed())


def _perturbed_mutual_information(pair: Pair) -> PerSample:
    return predictive.mutual_information(pair.perturbed())


def _perturbed_log_mutual_information(pair: Pair) -> PerSample:
    return predictive.log_mutual_information(pair.perturbed())


def _perturbed_expected_entropy(pair: Pair) -> PerSample:
    return predictive.expected_entropy(pair.perturbed())


def _perturbed_log_expected_entropy(pair: Pair) -> PerSample:
    return predictive.log_expected_entropy(pair.perturbed())


def _perturbed_variation_ratio(pair: Pair) -> PerSample:
    return predictive.variation_ratio(pair.perturbed())


def _perturbed_log_variation_ratio(pair: Pair) -> PerSample:
    return predictive.log_variation_ratio(pair.perturbed())


def _perturbed_gap(pair: Pair) -> PerSample:
    return predictive.top_two_gap(predictive.log_mean_prob(pair.perturbed()))


def _log_probs_of_both(pair: Pair) -> tuple[Tensor, Tensor]:
    return predictive.log_mean_prob(pair.clean()), predictive.log_mean_prob(pair.perturbed())


def _divergence(pair: Pair) -> PerSample:
    clean, perturbed = _log_probs_of_both(pair)
    return (clean.exp() * (clean - perturbed)).sum(-1)


def _consistency(pair: Pair) -> PerSample:
    clean, perturbed = _log_probs_of_both(pair)
    clean = clean.detach()
    return (clean.exp() * (clean - perturbed)).sum(-1)


def _soft_cross_entropy(pair: Pair) -> PerSample:
    clean, perturbed = _log_probs_of_both(pair)
    return -(clean.exp() * perturbed).sum(-1)


def _offset_cross_entropy(pair: Pair) -> PerSample:
    clean, perturbed = (logits().softmax(-1).mean(0) for logits in (pair.clean, pair.perturbed))
    return -(clean * (perturbed + _OFFSET).log()).sum(-1)


def _named(name: str, value: Callable[[Pair], PerSample], **properties: bool) -> Objective:
    return Objective(((1.0, Term(name, value, **properties)),))


def _label_free(name: str, value: Callable[[Pair], PerSample], **properties: bool) -> Objective:
    return _named(name, value, takes_unlabelled=True, **properties)


clean_loss = _named("clean_loss", _clean_loss, moves=False)
"""Cross-entropy at the clean point."""
perturbed_loss = _named("perturbed_loss", _perturbed_loss)
"""Cross-entropy at the perturbed point: what LDP climbs."""
margin_loss = _named("margin_loss", _margin_loss)
"""The best other logit less that of the label, at the perturbed point: above 0 where it is misclassified."""
dlr_loss = _named("dlr_loss", _dlr_loss)
"""The same as a ratio that is blind to the scale of the logits (Croce & Hein 2020a, eq. 6); 3 classes up."""
target_margin = _named("target_margin", _target_margin)
"""The logit of the target less that of the label, at the perturbed point."""
targeted_dlr_loss = _named("targeted_dlr_loss", _targeted_dlr_loss)
"""The same as a ratio (eq. 7); 4 classes up."""
labelled_loss = _named("labelled_loss", _labelled_loss, moves=False, takes_unlabelled=True)
"""Cross-entropy at the clean point where there is a label, else 0: its mean over a batch is over all rows."""
clean_entropy = _label_free("clean_entropy", _clean_entropy, moves=False)
"""Entropy of the average prediction at the clean point, eq. (E): what MaxE rewards."""
perturbed_entropy = _label_free("perturbed_entropy", _perturbed_entropy)
"""Entropy at the perturbed point.  To climb it, take `perturbed_log_entropy`: this one's gradient underflows."""
perturbed_log_entropy = _label_free("perturbed_log_entropy", _perturbed_log_entropy)
"""Log of the entropy at the perturbed point: what UDP climbs."""
perturbed_mutual_information = _label_free("perturbed_mutual_information", _perturbed_mutual_information)
"""What the members disagree about at the perturbed point."""
perturbed_log_mutual_information = _label_free("perturbed_log_mutual_information", _perturbed_log_mutual_information)
"""Its log: to climb it where it underflows."""
perturbed_expected_entropy = _label_free("perturbed_expected_entropy", _perturbed_expected_entropy)
"""Mean of the members' own entropies at the perturbed point: what is left of the entropy without disagreement."""
perturbed_log_expected_entropy = _label_free("perturbed_log_expected_entropy", _perturbed_log_expected_entropy)
"""Its log: to climb it where it underflows."""
perturbed_variation_ratio = _label_free("perturbed_variation_ratio", _perturbed_variation_ratio)
"""1 - max p of the average prediction at the perturbed point."""
perturbed_log_variation_ratio = _label_free("perturbed_log_variation_ratio", _perturbed_log_variation_ratio)
"""Its log: to climb it where it underflows."""
perturbed_gap = _label_free("perturbed_gap", _perturbed_gap)
"""Lead of the first class over the second at the perturbed point, log p1 - log p2: 0 on the boundary.

For one member it is the gap of its two highest logits.  Uncertainty is its negative: a search climbs `-perturbed_gap`.
"""
divergence = _label_free("divergence", _divergence, flat_at_center=True)
"""KL(clean || perturbed): TRADES as Zhang et al. define it."""
consistency = _label_free("consistency", _consistency, flat_at_center=True)
"""KL(clean || perturbed) with the clean answer held fixed: what VAT descends, so that only the perturbed one moves."""
soft_cross_entropy = _label_free("soft_cross_entropy", _soft_cross_entropy, flat_at_center=True)
"""Cross-entropy of the perturbed answer under the clean one: TRADES as the paper writes it."""
offset_cross_entropy = _label_free("offset_cross_entropy", _offset_cross_entropy)
"""The same with 1e-8 inside the log: TRADES as the paper's tables use it.

The offset keeps it finite, and gives it a small gradient at the clean point, towards less confidence: a search that
starts there first takes a step that this decides.
"""

# In log form, which has the same maximisers: a search must not lose its gradient where the network is sure.
CLIMBED: Mapping[str, Objective] = {
    "entropy": perturbed_log_entropy,
    "mutual information": perturbed_log_mutual_information,
    "expected entropy": perturbed_log_expected_entropy,
    "variation ratio": perturbed_log_variation_ratio,
    "gap": -perturbed_gap,
}
"""What a search climbs for each measure of uncertainty, by the names of `UNCERTAINTIES`."""
