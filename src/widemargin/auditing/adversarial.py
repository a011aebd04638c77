"""The adversarial examples of an audit, as arrays and as an .npz file."""

from __future__ import annotations

import io
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from widemargin.auditing.config import AuditConfig
from widemargin.auditing.result import Adversarial, Array
from widemargin.auditing.target import AuditTarget
from widemargin.uncertainty.network import in_eval_mode

_ROUNDING = 1e-5
"""A place on a ball's surface may be measured a rounding error outside it."""


def adversarial(target: AuditTarget, config: AuditConfig, points: dict[str, Array]) -> Adversarial:
    """Of every point that is classified correctly the nearest place that minimum-norm attacks found, if any."""
    # A change of category may be enough.
    changed = (points["answer"] == points["label"]) & (config.categories is not None)
    is_known = ((points["way"] > 0) | changed) & np.isfinite(points["way"])
    chosen = np.flatnonzero(is_known)[np.argsort(points["row"][is_known])]
    rows, places, distance = (points[name][chosen] for name in ("row", "place", "way"))
    inputs, _ = target.examples[torch.from_numpy(rows)]
    radii = np.array([*(ball.radius for ball in config.balls), np.inf])
    return Adversarial(
        norm=config.balls[0].name,
        rows=rows,
        inputs=inputs.cpu().numpy(),
        adversarial=places,
        labels=points["label"][chosen],
        predictions=points["answer"][chosen],
        adversarial_predictions=_predicted(target, places),
        distance=distance,
        radius=radii[np.searchsorted(radii[:-1], distance * (1 - _ROUNDING))],
    )


def _predicted(target: AuditTarget, places: Array) -> Array:
    eot = target.eot
    parts = torch.from_numpy(places).to(target.examples.stored.device).split(eot.rows_at_once)
    with torch.no_grad(), in_eval_mode(eot.network):
        predicted = [eot.network(part).argmax(-1).cpu() for part in parts if len(part)]
    return torch.cat(predicted).numpy() if predicted else np.zeros(0, dtype=np.int64)


def npz(examples: Adversarial) -> bytes:
    """The content of an .npz file with an array for every field."""
    content = io.BytesIO()
    arrays: dict[str, Any] = {one.name: np.asarray(getattr(examples, one.name)) for one in fields(examples)}
    np.savez_compressed(content, **arrays)
    return content.getvalue()
