"""Diagnoses: each looks for something for which attacks fail, and answers with evidence."""

from widemargin.measure.diagnostics.attacks import broken_by
from widemargin.measure.diagnostics.finding import Finding, failed_finding, sentence_of
from widemargin.measure.diagnostics.gradients import gradients, loss_surface
from widemargin.measure.diagnostics.sanity import inputs_in_box, modes, probabilities, randomness
from widemargin.measure.diagnostics.strength import (
    black_box,
    large_radius,
    more_steps,
    random_noise,
    rising,
    stood_in,
    transfer,
)
from widemargin.measure.diagnostics.suite import DIAGNOSES, Diagnosis, Effort, Examined, all_findings

__all__ = [
    "DIAGNOSES",
    "Diagnosis",
    "Effort",
    "Examined",
    "Finding",
    "all_findings",
    "black_box",
    "broken_by",
    "failed_finding",
    "gradients",
    "inputs_in_box",
    "large_radius",
    "loss_surface",
    "modes",
    "more_steps",
    "probabilities",
    "random_noise",
    "randomness",
    "rising",
    "sentence_of",
    "stood_in",
    "transfer",
]
