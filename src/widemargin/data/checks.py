"""Checks of inputs and labels; every error says what must hold and what was got."""

import torch
from torch import Tensor

UNLABELLED = -1
"""The label of a row whose class is unknown."""
ClassName = str | int | float
"""As the source of a dataset calls a class."""


def check_points(points: Tensor) -> None:
    if not isinstance(points, Tensor):
        raise ValueError(f"points must be a tensor, got {type(points).__name__}: call torch.as_tensor(points)")
    if not points.is_floating_point():
        raise ValueError(f"points must be floating-point numbers, got {points.dtype}: call points.float()")
    if points.ndim < 2 or len(points) == 0:
        advice = ": add a batch axis, x[None]" if points.ndim == 1 and len(points) else ""
        raise ValueError(
            f"points must have shape [batch, features...] and at least one row, got {list(points.shape)}{advice}"
        )
    check_features(points)
    finite = points.isfinite()
    if not finite.all():
        row = int((~finite).flatten(1).any(1).nonzero()[0])
        raise ValueError(f"points must be finite, got NaN or infinity in row {row}: drop or fill such rows first")


def check_features(points: Tensor) -> None:
    if points[0].numel() == 0:
        raise ValueError(f"points must have at least one feature, got none in shape {list(points.shape)}: add some")


def check_label_type(labels: Tensor) -> None:
    if not isinstance(labels, Tensor):
        raise ValueError(f"labels must be a tensor, got {type(labels).__name__}: call torch.as_tensor(labels)")
    if labels.dtype != torch.int64:
        raise ValueError(f"labels must be whole numbers of type torch.int64, got {labels.dtype}: call labels.long()")


def check_labels(labels: Tensor, rows: int, classes: int) -> None:
    check_label_type(labels)
    if labels.shape != (rows,):
        raise ValueError(f"labels must have shape [{rows}], one for every point, got {list(labels.shape)}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        advice = ": count them from 0, y - 1" if (low, high) == (1, classes) else signs_advice(labels)
        raise ValueError(f"labels must be in 0..{classes - 1} for {classes} classes, got {low}..{high}{advice}")


def signs_advice(labels: Tensor) -> str:
    """For classes -1 and 1, in which the former would be no label."""
    signs = labels.unique().tolist() == [-1, 1]
    return ": if these are two classes, -1 and 1, map them to 0 and 1, (y + 1) // 2" if signs else ""


def check_known_labels(labels: Tensor, rows: int, classes: int) -> None:
    """The same for labels of which some may be UNLABELLED."""
    check_label_type(labels)
    check_labels(labels.where(labels != UNLABELLED, 0), rows, classes)
