import pytest
import torch
from torch import nn

from widemargin.fast.pooling import Halving, is_halving


@pytest.mark.parametrize("side", [6, 7])
@pytest.mark.parametrize("gradient", [False, True])
def test_halving_is_max_pooling(side: int, gradient: bool) -> None:
    inputs = torch.rand(3, 2, side, side)
    inputs[0, 0, 0, 0] = torch.nan
    plain = nn.MaxPool2d(2)(inputs).nan_to_num(7)
    assert torch.equal(Halving()(inputs.requires_grad_(gradient)).nan_to_num(7), plain)


def test_only_plain_pooling_over_two_by_two_is_halving() -> None:
    assert is_halving(nn.MaxPool2d(2))
    others = [
        nn.MaxPool2d(3),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, stride=1),
        nn.MaxPool2d(2, padding=1),
        nn.MaxPool2d(2, return_indices=True),
        nn.AvgPool2d(2),
    ]
    assert not any(map(is_halving, others))
