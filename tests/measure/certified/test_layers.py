from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certified_cases import normal
from widemargin.measure.certified.layers import (
    Add,
    Average,
    Conv,
    Interval,
    Layer,
    Linear,
    MaxPool,
    ReLU,
    Reshape,
    Scale,
)

PRIMITIVES: list[tuple[Layer, int, Callable[..., Tensor], tuple[int, ...]]] = [
    (Linear(normal(3, 5), normal(3)), 1, lambda x: F.linear(x, normal(3, 5), normal(3)), (5,)),
    (
        Conv(normal(4, 1, 3, 3), normal(4), (2, 2), (1, 1), (1, 1), 2),
        1,
        lambda x: F.conv2d(x, normal(4, 1, 3, 3), normal(4), 2, 1, 1, 2),
        (2, 6, 5),
    ),
    (
        Conv(normal(4, 2, 3), None, (1,), (2,), (2,), 1),
        1,
        lambda x: F.conv1d(x, normal(4, 2, 3), None, 1, 2, 2),
        (2, 7),
    ),
    (Scale(normal(3, 1), normal(3, 1, seed=1)), 1, lambda x: x * normal(3, 1) + normal(3, 1, seed=1), (3, 4)),
    (Average(nn.AvgPool2d(3, 2, 1)), 1, lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 5, 5)),
    (Average(nn.AdaptiveAvgPool2d(1)), 1, lambda x: x.mean((2, 3), keepdim=True), (2, 5, 5)),
    (Reshape((8,)), 1, lambda x: x.flatten(1), (2, 4)),
    (Add(), 2, lambda x, y: x + y, (4,)),
    (Add(-1), 2, lambda x, y: x - y, (4,)),
    (ReLU(), 1, torch.relu, (9,)),
    (MaxPool((2, 2), (2, 2), (0, 0)), 1, lambda x: F.max_pool2d(x, 2), (2, 4, 6)),
    (MaxPool((2, 2), (2, 2), (0, 0)), 1, lambda x: F.max_pool2d(x, 2), (2, 5, 5)),
    (MaxPool((3, 3), (2, 2), (1, 1)), 1, lambda x: F.max_pool2d(x, 3, 2, 1), (2, 5, 6)),
    (MaxPool((2, 3), (1, 2), (1, 0)), 1, lambda x: F.max_pool2d(x, (2, 3), (1, 2), (1, 0)), (1, 4, 5)),
]


@pytest.mark.parametrize(("layer", "takes", "function", "shape"), PRIMITIVES, ids=lambda value: type(value).__name__)
def test_bounds_of_a_layer_hold_wherever_its_sources_are(
    layer: Layer, takes: int, function: Callable[..., Tensor], shape: tuple[int, ...]
) -> None:
    for seed in range(5):
        sources, samples = [], []
        for number in range(takes):
            middle, width = normal(1, *shape, seed=10 * seed + number), normal(1, *shape, seed=seed + 5).abs()
            sources.append(Interval(middle - width, middle + width))
            share = torch.rand(500, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
            samples.append(middle + width * (2 * share - 1).sign() * share.roll(1, 0).clamp_min(share.round()))
        outputs = function(*samples)
        interval = layer.interval(*sources)
        assert (outputs >= interval.low - 1e-12).all()
        assert (outputs <= interval.high + 1e-12).all()
        rows = normal(6, *outputs.shape[1:], seed=seed)
        coefficients, constants = layer.substitute(rows, *sources)
        below = constants + sum(
            sample.flatten(1) @ part.flatten(1).T for sample, part in zip(samples, coefficients, strict=True)
        )
        assert (below <= outputs.flatten(1) @ rows.flatten(1).T + 1e-9).all()
        if not isinstance(layer, ReLU | MaxPool):
            assert torch.allclose(below, outputs.flatten(1) @ rows.flatten(1).T)
