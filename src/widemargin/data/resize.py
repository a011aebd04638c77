"""Images resized and converted to the shape that a network takes."""

from __future__ import annotations

import torch
from torch.nn.functional import interpolate

from widemargin.data.dataset import Dataset

# ITU-R 601, as most programs turn colours to grey.
_GREY = (0.299, 0.587, 0.114)


def resize(examples: Dataset, shape: tuple[int, ...]) -> Dataset:
    """In this shape, [C, H, W]: scaled bilinearly, grey repeated in three channels or colours converted to grey.

    Tables must have the shape already: a feature cannot be scaled.
    """
    there = tuple(examples.stored.shape[1:])
    if there == shape:
        return Dataset(examples.points, examples.labels)
    if len(there) != 3 or len(shape) != 3 or there[0] not in (1, 3) or shape[0] not in (1, 3):
        raise ValueError(
            f"examples must have the shape {list(shape)}, or both must be images in grey or colour, got {list(there)}"
        )
    points = examples.points
    if there[0] > shape[0]:
        points = (points * torch.tensor(_GREY)[:, None, None]).sum(1, keepdim=True)
    points = interpolate(points, shape[1:], mode="bilinear", align_corners=False, antialias=True).clamp(0, 1)
    return Dataset(points.expand(-1, shape[0], -1, -1).contiguous(), examples.labels)
