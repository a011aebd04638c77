"""The network and the examples under audit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from widemargin.auditing.config import AuditConfig
from widemargin.auditing.result import FORMAT
from widemargin.data.dataset import Dataset
from widemargin.measure.diagnostics import probabilities
from widemargin.measure.eot import EOT, eot
from widemargin.runs.keys import key_of
from widemargin.uncertainty.log_probabilities import LogProbabilities
from widemargin.uncertainty.network import Network, in_eval_mode

DIAGNOSED = 200
"""Points for the diagnoses, which need no more."""
_TRIED = 32
"""Points by which it is decided whether answers are probabilities."""


@dataclass(frozen=True, eq=False)
class AuditTarget:
    network: Network
    name: str
    digest: str
    examples: Dataset
    data: str
    notes: tuple[str, ...] = ()
    """What is known of it before it is asked anything: a softmax that was left off, for instance."""

    @cached_property
    def eot(self) -> EOT:
        """What decides whether a point is right, and what attacks climb."""
        return eot(LogProbabilities(self.network) if self.as_logs else self.network, self.examples)

    @cached_property
    def as_logs(self) -> bool:
        """Whether all answers are probabilities, of which no attack could climb anything."""
        finding = probabilities(self.network, self.examples.take(torch.arange(min(_TRIED, len(self.examples)))))
        return finding.numbers["share"] == 1 and finding.numbers["lowest"] >= 0 and finding.numbers["highest"] <= 1

    @cached_property
    def classes(self) -> int:
        inputs, _ = self.examples[torch.arange(1)]
        network = self.eot.network
        with torch.no_grad(), in_eval_mode(network):
            return int(network(inputs).shape[-1])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What limits all figures: answers that are random or no logits, and notes."""
        problem = self.eot.problem
        random = (f"Answers are random, and every figure is of single ones, since {problem}.",) if problem else ()
        logs = ("Answers are probabilities: attacks climbed their logs.",) * self.as_logs
        known = tuple(f"{note[0].upper()}{note[1:]}." for note in self.notes)
        return (*random, *logs, *known)

    def key(self, config: AuditConfig) -> str:
        # How many points are asked together decides nothing.
        same = replace(config, chunk=AuditConfig.chunk)
        return key_of(FORMAT, self.digest, self.examples.digest, len(self.examples), same)
