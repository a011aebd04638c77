from itertools import pairwise

import pytest
import torch
from torch import nn

from foreign import ResNet18, Viewed, chain, lively
from widemargin import L2, Linf, Single, at_input
from widemargin.fast.accelerate import accelerated
from widemargin.fast.windows import Window, first_layers
from widemargin.networks.lenet import LeNet
from widemargin.networks.resnet import PreActResNet18
from widemargin.perturb.balls import UNIT
from widemargin.perturb.square import Square
from widemargin.rng import RowRng
from widemargin.uncertainty.as_logits import AsLogits


def rand(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3)).double()


def quick(network: nn.Module, images: torch.Tensor) -> Single:
    made = accelerated(Single(at_input(lively(network))).double().eval(), images)
    assert isinstance(made, Single)
    return made


def windows(height: int, width: int) -> list[Window]:
    """At the edges and in the middle, of one pixel and of several, and the whole."""
    sides = [[slice(0, 1), slice(0, 4), slice(7, 8), slice(6, 9), slice(size - 1, size)] for size in (height, width)]
    some = [Window(rows, columns) for rows, columns in zip(sides[0], sides[1][2:] + sides[1][:2], strict=True)]
    corners = [Window(sides[0][i], sides[1][i]) for i in (0, -1)]
    return [*some, *corners, Window(slice(0, height), slice(0, width))]


def small(kernel: int, padding: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, kernel, stride, padding),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 3, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(3, 3),
    )


def small_of_many() -> nn.Module:
    pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3))
    return nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), *pooled)


KERNELS = [(5, 2, 1), (5, 0, 2), (5, 4, 1), (3, 1, 2), (3, 0, 1), (3, 2, 3), (1, 0, 1), (1, 0, 2), (2, 1, 2), (4, 1, 3)]
BEGINNINGS = {
    **{f"kernel {k}, padding {p}, stride {s}": (small(k, p, s), (3, 16, 13)) for k, p, s in KERNELS},
    "LeNet on blocks": (LeNet(), (1, 28, 28)),
    "LeNet": (LeNet(side=26), (1, 26, 26)),
    "ResNet-18": (ResNet18(4), (3, 32, 32)),
    "in tiles": (nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), small_of_many()), (3, 16, 16)),
    "PreActResNet18": (PreActResNet18(width=4), (3, 32, 32)),
    "normalised inputs": (Viewed(), (3, 32, 32)),
    "pooling": (chain(), (3, 32, 32)),
    "wrapped": (AsLogits(ResNet18(4), "mine"), (3, 32, 32)),
}


@pytest.mark.parametrize("name", BEGINNINGS)
def test_what_is_rewritten_in_windows_is_what_the_layers_make_of_the_whole(name: str) -> None:
    network, shape = BEGINNINGS[name]
    before, after = rand(2, 24 if shape[0] == 1 else 2, *shape)
    classify = quick(network, before)
    with torch.inference_mode():
        first = first_layers(classify, before)
        assert first is not None
        torch.testing.assert_close(first.rest(first.features(before)[-1]), classify(before), rtol=1e-10, atol=1e-10)
        some = windows(*shape[1:])
        for both in pairwise([*some, some[0]]):
            changed, features = before.clone(), tuple(each.clone() for each in first.features(before))
            for window in both:
                window.of(changed).copy_(window.of(after))
            changes = first.rewrite(changed, features, both)
            torch.testing.assert_close(features, first.features(changed), rtol=1e-10, atol=1e-10)
            for place, old in changes:
                place.copy_(old)
            assert all(map(torch.equal, features, first.features(before)))


def test_deep_networks_are_followed_as_far_as_a_small_square_reaches_little() -> None:
    images = rand(2, 3, 32, 32)
    first = first_layers(quick(ResNet18(4), images), images)
    assert first is not None
    assert 10 < len(first.steps) < 40
    # Two stages: behind them nearly everything has changed.
    assert first.sizes[-1] == (16, 16)


OTHERS = {
    "not accelerated": lambda: Single(at_input(LeNet())).double(),
    "no network": lambda: lambda points: points.flatten(1),
    "no convolution": lambda: Single(at_input(nn.Sequential(nn.Flatten(), nn.Linear(784, 2)))).double(),
    "flat": lambda: quick(nn.Sequential(nn.Flatten(2), nn.Unflatten(2, (28, 28)), small_pooled()), rand(2, 1, 28, 28)),
    "reflect": lambda: quick(small_pooled(padding_mode="reflect"), rand(2, 1, 28, 28)),
}


def small_pooled(padding_mode: str = "zeros") -> nn.Module:
    conv = nn.Conv2d(1, 2, 5, padding=2, padding_mode=padding_mode)
    return nn.Sequential(conv, nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(392, 2))


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_are_computed_as_a_whole(name: str) -> None:
    assert first_layers(OTHERS[name](), rand(2, 1, 28, 28)) is None


@pytest.mark.parametrize("ball", [Linf(0.01), L2(0.2)], ids=repr)
def test_square_finds_the_same_with_windows_as_with_whole_images(ball) -> None:
    torch.manual_seed(0)
    lenet = Single(at_input(LeNet(classes=3))).double().eval().requires_grad_(False)
    # Centred, so that not one class has all points.
    lenet.head.head.linear3.bias -= lenet.head(rand(40, 1, 28, 28)).mean(0)
    images = rand(40, 1, 28, 28)
    labels, noise = lenet(images).argmax(1), RowRng(0, torch.arange(40))
    plain = Square(ball, 80)(lenet, images, labels, noise).points
    shapes = []
    lenet.register_forward_pre_hook(lambda module, given: shapes.append(given[0].shape[1:]))
    classify = accelerated(lenet, images)
    shapes.clear()
    windowed = Square(ball, 80)(classify, images, labels, noise).points
    # What counts a network's calls still sees them.
    assert set(shapes) == {(6, 14, 14)}
    assert 60 < len(shapes) <= 81
    torch.testing.assert_close(windowed, plain, rtol=0, atol=1e-9)
    assert 3 < int((windowed != images).flatten(1).any(1).sum()) < 40
    UNIT.check(windowed)
