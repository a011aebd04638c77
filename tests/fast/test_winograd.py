"""The twin is torch's own convolution."""

import copy

import pytest
import torch
from torch import Tensor, nn

from widemargin.fast.winograd import WinogradConvolution, is_for_winograd, numbers_at_points


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1)).double() - 0.4


def convolution(inputs: int = 64, outputs: int = 64, **options) -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(inputs, outputs, 3, padding=1, **options).double().requires_grad_(False)


def answers(layer: nn.Module, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    points = images.clone().requires_grad_()
    answer = layer(points)
    # Every pixel counts, each by another number.
    weights = torch.linspace(-1, 7, answer.numel()).view_as(answer).cos()
    (gradient,) = torch.autograd.grad((answer * weights).sum(), points)
    with torch.inference_mode():
        return answer.detach(), gradient, layer(images)


TILES = {
    "tiles of 4": (rand(3, 64, 16, 12), {"at_points_4"}),
    "over the edge": (rand(6, 64, 7, 8), {"at_points_4"}),
    "over both edges": (rand(2, 64, 15, 14), {"at_points_4"}),
    "tiles of 2": (rand(5, 64, 4, 4), {"at_points_2"}),
    "not over the edge": (rand(8, 64, 6, 10), {"at_points_2"}),
    "odd": (rand(8, 64, 5, 5), set()),
    "few": (rand(2, 64, 4, 4), set()),
    "one pixel": (rand(40, 64, 1, 1), set()),
    "none": (rand(0, 64, 8, 8), set()),
}


@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last], ids=str)
def test_tiles_make_the_same_answers_and_gradients(name: str, bias: bool, order: torch.memory_format) -> None:
    images, made = TILES[name]
    conv = convolution(outputs=80, bias=bias)
    quick = WinogradConvolution(conv)
    images = images.contiguous(memory_format=order)
    torch.testing.assert_close(answers(quick, images), answers(conv, images), rtol=1e-11, atol=1e-11)
    assert {name for name, _ in quick.named_buffers()} == made


@pytest.mark.parametrize("shape", [(5, 64, 12, 8), (2, 64, 24, 20), (2, 64, 23, 19)], ids=str)
@pytest.mark.parametrize("at_once", [1, 7, 12])
def test_images_and_parts_of_images_are_computed_one_after_the_other(shape: tuple[int, ...], at_once: int) -> None:
    conv, images = convolution(), rand(*shape)
    quick = WinogradConvolution(conv, at_once)
    torch.testing.assert_close(answers(quick, images), answers(conv, images), rtol=1e-11, atol=1e-11)
    assert {name for name, _ in quick.named_buffers()} == {"at_points_4"}


def second(layer: nn.Module, images: Tensor) -> Tensor:
    points = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(points).pow(3).sum(), points, create_graph=True)
    return torch.autograd.grad(gradient.pow(2).sum(), points)[0]


TRANSFORMED = {
    "second derivative": second,
    "vmap": lambda layer, images: torch.vmap(layer, 1, 2)(images.unflatten(0, (3, 2))),
    "vmap in vmap": lambda layer, images: torch.vmap(torch.vmap(lambda one: layer(one[None])))(images[None]),
    "jvp": lambda layer, images: torch.func.jvp(layer, (images,), (images.cos(),))[1],
    "second derivative by torch.func": lambda layer, images: torch.func.grad(
        lambda ones: torch.func.grad(lambda others: layer(others).pow(3).sum())(ones).pow(2).sum()
    )(images),
    "vmap of a gradient": lambda layer, images: torch.vmap(torch.func.grad(lambda one: layer(one[None]).pow(3).sum()))(
        images
    ),
}


# torch.func.jvp scripts what it needs.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("name", TRANSFORMED)
def test_torch_func_and_second_derivatives_work_as_they_do_with_the_convolution(name: str) -> None:
    conv, images = convolution(outputs=80), rand(6, 64, 16, 16)
    quick = WinogradConvolution(conv)
    # Again, with what was held by then.
    for transformed in (TRANSFORMED[name], second, TRANSFORMED[name]):
        made, twin = (transformed(layer, images) for layer in (quick, conv))
        torch.testing.assert_close(made, twin, rtol=1e-11, atol=1e-9)
    assert {name for name, _ in quick.named_buffers()} == {"at_points_4"}


def test_half_precision_is_left_to_the_convolution() -> None:
    conv, images = convolution().float(), rand(3, 64, 16, 16).float()
    quick = WinogradConvolution(conv)
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(quick(images), conv(images))
        # What autocast has seen serves without it.
        torch.testing.assert_close(quick(images), conv(images))
    small = copy.deepcopy(quick).bfloat16()
    assert torch.equal(small(images.bfloat16()), small.conv(images.bfloat16()))


def test_single_precision_loses_little() -> None:
    images, exact = rand(4, 128, 16, 16), convolution(128, 128)
    conv = copy.deepcopy(exact).float()
    near, errors = answers(exact, images), []
    for layer in (conv, WinogradConvolution(conv)):
        errors.append(
            [float((a - b).norm() / b.norm()) for a, b in zip(answers(layer, images.float()), near, strict=True)]
        )
    assert max(errors[1]) < 5e-6
    assert max(errors[0]) < max(errors[1])


def test_weights_made_in_inference_mode_serve_a_gradient() -> None:
    conv, images = convolution(), rand(3, 64, 16, 16)
    quick = WinogradConvolution(conv)
    with torch.inference_mode():
        quick(images)
    torch.testing.assert_close(answers(quick, images), answers(conv, images), rtol=1e-11, atol=1e-11)


def test_no_more_is_held_than_was_counted() -> None:
    conv = convolution(outputs=80)
    quick = WinogradConvolution(conv)
    for images in (rand(3, 64, 16, 16), rand(5, 64, 4, 4)):
        quick(images)
    assert sum(buffer.numel() for buffer in quick.buffers()) == numbers_at_points(conv)


def test_what_comes_after_may_overwrite_the_answer() -> None:
    conv, images = convolution(), rand(3, 64, 16, 16)
    chains = [nn.Sequential(first, nn.ReLU(inplace=True)) for first in (conv, WinogradConvolution(conv))]
    torch.testing.assert_close(*(answers(chain, images) for chain in chains), rtol=1e-11, atol=1e-11)


OTHERS = {
    "stride": nn.Conv2d(64, 64, 3, stride=2, padding=1),
    "no padding": nn.Conv2d(64, 64, 3),
    "same": nn.Conv2d(64, 64, 3, padding="same"),
    "dilation": nn.Conv2d(64, 64, 3, padding=1, dilation=2),
    "groups": nn.Conv2d(64, 64, 3, padding=1, groups=2),
    "reflect": nn.Conv2d(64, 64, 3, padding=1, padding_mode="reflect"),
    "5 x 5": nn.Conv2d(64, 64, 5, padding=1),
    "few inputs": nn.Conv2d(32, 64, 3, padding=1),
    "few outputs": nn.Conv2d(64, 32, 3, padding=1),
    "half": nn.Conv2d(64, 64, 3, padding=1).half(),
    "elsewhere": nn.Conv2d(64, 64, 3, padding=1, device="meta"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_are_left_as_they_are(name: str) -> None:
    assert not is_for_winograd(OTHERS[name])
    assert is_for_winograd(convolution())
