import pytest
import torch
from torch import nn

from widemargin.fast import folding


def norm_of(channels: int, affine: bool = True, sign: float = 1.0) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels, affine=affine).double().eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    if affine:
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        norm.weight.data[0] *= sign
        nn.init.normal_(norm.bias)
    return norm


@pytest.mark.parametrize("affine", [True, False])
def test_a_normalisation_is_a_factor_and_a_shift(affine: bool) -> None:
    norm, images = norm_of(3, affine), torch.randn(2, 3, 4, 4).double()
    factor, shift = folding.factor_and_shift(norm)
    torch.testing.assert_close(images * factor.view(-1, 1, 1) + shift.view(-1, 1, 1), norm(images))


@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_and_its_normalisation_are_one_convolution(bias: bool) -> None:
    conv = nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2, bias=bias).double()
    norm, images = norm_of(6), torch.randn(2, 4, 9, 9).double()
    quick = folding.folded(conv, norm)
    torch.testing.assert_close(quick(images), norm(conv(images)))
    assert not any(parameter.requires_grad for parameter in quick.parameters())
    if not bias:
        scale = torch.rand(2).double()
        expected = norm(conv(images * scale.repeat(2).view(-1, 1, 1)))
        torch.testing.assert_close(folding.normalised(conv, norm, images, scale), expected)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_factor_leaves_a_rectifier_only_if_it_is_positive(sign: float) -> None:
    norm, images = norm_of(3, sign=sign), torch.randn(2, 3, 4, 4).double()
    quick, factor = folding.rectified(norm, images)
    torch.testing.assert_close(quick * factor.view(-1, 1, 1), norm(images).relu())
    assert bool((factor == 1).all()) == (sign < 0)


def test_only_fixed_numbers_of_the_images_precision_are_folded() -> None:
    conv, norm, images = nn.Conv2d(2, 2, 1, bias=False).double(), norm_of(2), torch.zeros(1, 2, 3, 3).double()
    assert not folding.may_fold(images, conv, norm)
    with torch.no_grad():
        assert folding.may_fold(images, conv, norm)
        assert not folding.may_fold(images.float(), conv, norm)
        assert not folding.may_fold(images, nn.Conv2d(2, 2, 1).double(), norm)
        assert not folding.may_fold(images, conv, norm.train())
