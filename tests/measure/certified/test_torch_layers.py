"""A layer gives at a point what torch gives, whether it is read from a module, a function or an operator."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from widemargin.measure.certified.layers import Add, Interval, Layer, Scale
from widemargin.measure.certified.torch_layers import (
    ATEN_FUNCTIONS,
    FUNCTIONS,
    arithmetic,
    of_module,
    product,
)

IMAGES = torch.rand(3, 4, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
ROWS = IMAGES[:, :, 0, 0]


def at(layer: Layer, points: Tensor) -> Tensor:
    """At an interval that is a point."""
    return torch.cat([layer.interval(Interval(point[None], point[None])).low for point in points])


@pytest.mark.parametrize(
    ("module", "points"),
    [
        (nn.Linear(4, 5), ROWS),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), IMAGES),
        (nn.BatchNorm2d(4), IMAGES),
        (nn.MaxPool2d(2), IMAGES),
        (nn.ReLU(), IMAGES - 0.5),
        (nn.AvgPool2d(3), IMAGES),
        (nn.AdaptiveAvgPool2d(2), IMAGES),
        (nn.Flatten(), IMAGES),
        (nn.Dropout(), IMAGES),
    ],
    ids=repr,
)
def test_modules(module: nn.Module, points: Tensor) -> None:
    value = module.double().eval()(points)
    torch.testing.assert_close(at(of_module(module, value), points), value)


WEIGHT, BIAS = IMAGES[0].flatten(1)[:, :4], IMAGES[0, 0, 0, :4]


@pytest.mark.parametrize(
    ("name", "args", "points"),
    [
        ("linear", (WEIGHT, BIAS), ROWS),
        ("matmul", (WEIGHT,), ROWS),
        ("relu", (), ROWS - 0.5),
        ("mean", ((2, 3),), IMAGES),
        ("avg_pool2d", (2,), IMAGES),
        ("max_pool2d", (2, 2), IMAGES),
        ("flatten", (1,), IMAGES),
    ],
)
def test_functions(name: str, args: tuple[Any, ...], points: Tensor) -> None:
    value = (getattr(F, name, None) or getattr(torch, name))(points, *args)
    torch.testing.assert_close(at(FUNCTIONS[name](value, *args), points), value)


def test_the_operator_of_batch_norm_has_another_order() -> None:
    mean, variance, weight, bias = BIAS, BIAS + 1, BIAS + 2, BIAS + 3
    value = F.batch_norm(IMAGES, mean, variance, weight, bias)
    for layer in (
        FUNCTIONS["batch_norm"](value, mean, variance, weight, bias),
        ATEN_FUNCTIONS["batch_norm"](value, weight, bias, mean, variance, False, 0.1, 1e-5, True),
    ):
        torch.testing.assert_close(at(layer, IMAGES), value)


def test_arithmetic_with_constants_is_linear_and_among_values_a_sum() -> None:
    constants: tuple[tuple[str, list[Any], Tensor], ...] = (
        ("+", [None, 2.0], ROWS + 2),
        ("-", [3.0, None], 3 - ROWS),
        ("*", [BIAS, None], BIAS * ROWS),
        ("/", [None, 4], ROWS / 4),
    )
    for sign, operands, value in constants:
        layer = arithmetic(sign, operands, value)
        assert isinstance(layer, Scale)
        torch.testing.assert_close(at(layer, ROWS), value)
    assert isinstance(arithmetic("-", [None, None], ROWS), Add)


def test_what_is_known_differently_is_said() -> None:
    with pytest.raises(NotImplementedError, match="is no linear function of what it takes"):
        arithmetic("*", [None, None], ROWS)
    with pytest.raises(NotImplementedError, match="adds another constant to every point"):
        arithmetic("+", [None, ROWS], ROWS)
    with pytest.raises(NotImplementedError, match="is no product with one matrix"):
        product(ROWS, IMAGES[0])
    with pytest.raises(NotImplementedError, match="pads by reflect"):
        of_module(nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), IMAGES)
    with pytest.raises(KeyError):
        of_module(nn.GELU(), ROWS)
