"""Whether the points of an audit can be certified, tried on one of them; if not, why."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from widemargin.auditing.clock import duration
from widemargin.auditing.guarded import CERTIFICATES, Failed
from widemargin.auditing.pace import PROOF
from widemargin.auditing.target import AuditTarget
from widemargin.measure.categories import uncertified_changes
from widemargin.measure.certified import certified
from widemargin.measure.diagnostics import sentence_of
from widemargin.perturb.balls import Ball
from widemargin.perturb.categories import ENUMERATED, CategoryChanges
from widemargin.uncertainty.network import in_eval_mode

LONGEST_PROOF = 3.0
"""In seconds."""
_NOT_EVEN_TRIED = 4
"""A proof that seems to take so many times as long as the longest is not begun."""


@dataclass(frozen=True)
class Uncertified:
    """Reasons why there are no certificates, none if there are; and what went wrong though there might be some."""

    reasons: tuple[str, ...] = ()
    failed: Failed = field(default_factory=dict)


def uncertifiable(
    target: AuditTarget, ball: Ball, longest: float = LONGEST_PROOF, changes: CategoryChanges | None = None
) -> Uncertified:
    """One proof, which may take `longest` seconds; all proofs of a point whose categories may change."""
    if changes is not None and changes.count > ENUMERATED:
        return Uncertified((f"No certified bounds: {uncertified_changes(changes)}.",))
    proofs = 1 if changes is None else changes.count
    network, one = target.eot.network, target.examples.take(torch.arange(1))
    with torch.no_grad(), in_eval_mode(network):
        # The first may have to prepare something.
        answers = [_thread_seconds(lambda: network(one[torch.arange(1)][0])) for _ in range(3)]
    # Of large networks, whose bounds are loose, proofs would take longer than all attacks.
    expected = proofs * PROOF * min(answers)
    if expected > _NOT_EVEN_TRIED * longest > 0:
        return Uncertified((f"No certified bounds: one proof would take about {duration(expected)}.",))
    try:
        took = proofs * _thread_seconds(lambda: certified(network, one, ball))
    except ValueError as problem:
        return Uncertified((f"No certified bounds: {problem}.",))
    except Exception as problem:
        # Of a network that is not as others: it is audited without.
        return Uncertified(("No certified bounds: the proof failed.",), {CERTIFICATES: sentence_of(problem)})
    return Uncertified((f"No certified bounds: one proof takes more than {longest:g} s.",) if took > longest else ())


def _thread_seconds(work: Callable[[], object]) -> float:
    """Of this thread alone, so that it does not matter what else the machine has to do."""
    begun = time.thread_time()
    work()
    return time.thread_time() - begun
