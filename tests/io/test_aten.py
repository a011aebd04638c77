import pytest
import torch
from torch.nn import functional as F

from widemargin.io.aten import OPERATORS, OVERWRITING, positional

IMAGES = torch.randn(2, 4, 6, 6)


def test_functions_are_what_the_operators_of_their_name_compute() -> None:
    def run(name: str, *given: object) -> torch.Tensor:
        return OPERATORS[f"torch.ops.aten.{name}"](*given)

    weight, bias = torch.rand(4), torch.rand(4)
    torch.testing.assert_close(run("_softmax.default", IMAGES, 1, False), IMAGES.softmax(1))
    torch.testing.assert_close(run("_log_softmax.default", IMAGES, 1, False), IMAGES.log_softmax(1))
    (pooled, _) = run("max_pool2d_with_indices.default", IMAGES, [2, 2])
    torch.testing.assert_close(pooled, F.max_pool2d(IMAGES, 2))
    (normed, *_) = run("native_group_norm.default", IMAGES, weight, bias, 2, 4, 36, 2, 1e-5)
    torch.testing.assert_close(normed, F.group_norm(IMAGES, 2, weight, bias, 1e-5))
    torch.testing.assert_close(run("_unsafe_view.default", IMAGES, [2, -1]), IMAGES.flatten(1))


def test_arithmetic_of_sizes_is_of_numbers_of_64_bits() -> None:
    times = OPERATORS["_operator.mul"]
    assert times(3, 4) == 12
    with pytest.raises(TypeError, match="numbers alone"):
        times([1], 10**9)
    with pytest.raises(OverflowError, match="64 bits"):
        times(2**62, 2)


def test_an_operator_that_overwrites_has_one_that_does_not() -> None:
    for name, plain in OVERWRITING.items():
        assert name not in OPERATORS
        assert callable(plain)
    x = torch.tensor([-1.0, 1.0])
    assert torch.equal(OVERWRITING["torch.ops.aten.relu_.default"](x), torch.tensor([0.0, 1.0]))
    assert x[0] == -1


def test_arguments_are_positional_as_far_as_their_order_is_that_of_the_operator() -> None:
    add = OPERATORS["torch.ops.aten.add.Tensor"]
    assert positional(add, ["self", "other", "alpha"]) == 2
    assert positional(add, ["other", "self"]) == 0
    assert positional(OPERATORS["_operator.add"], ["a", "b"]) == 2
