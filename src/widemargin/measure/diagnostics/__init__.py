"""Is this robustness real?  Each diagnosis looks for one way in which attacks fail, and answers with evidence."""

from widemargin.measure.diagnostics.climbing import PGD, broken_by
from widemargin.measure.diagnostics.every import DIAGNOSES, all_findings
from widemargin.measure.diagnostics.finding import Finding, failed_finding, sentence_of
from widemargin.measure.diagnostics.handed_over import inputs_in_box, modes, probabilities, randomness
from widemargin.measure.diagnostics.slopes import gradients, loss_surface
from widemargin.measure.diagnostics.strength import (
    black_box,
    large_radius,
    more_steps,
    random_noise,
    rising,
    stood_in,
    transfer,
)

__all__ = [
    "DIAGNOSES",
    "PGD",
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
