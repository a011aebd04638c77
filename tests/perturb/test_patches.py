import pytest
import torch
from torch import nn

from widemargin import L2, Linf, Single, at_input
from widemargin.fast.blocks import HeldBlocks
from widemargin.networks.lenet import LeNet
from widemargin.perturb import square
from widemargin.perturb.balls import UNIT
from widemargin.perturb.patches import FirstLayers, Window, cut_open
from widemargin.perturb.square import Square
from widemargin.rng import RowRng


def rand(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3))


def network(*layers: nn.Module) -> Single:
    return Single(at_input(nn.Sequential(*layers))).eval()


def windows(height: int, width: int) -> list[Window]:
    sides = [
        [slice(a, b) for a in range(0, size, 3) for b in (a + 1, a + 4, size) if b <= size] for size in (height, width)
    ]
    return [Window(rows, columns) for rows in sides[0] for columns in sides[1]]


KERNELS = [(5, 2), (5, 0), (5, 4), (3, 1), (3, 0), (3, 2), (1, 0)]


@pytest.mark.parametrize(
    ("kernel", "padding", "quick"),
    [(kernel, padding, quick) for kernel, padding in KERNELS for quick in sorted({False, kernel == 5})],
)
def test_a_patch_is_the_window_of_all_features(kernel: int, padding: int, quick: bool) -> None:
    size = 10
    conv = nn.Conv2d(2, 3, kernel, padding=padding).double().requires_grad_(False)
    first = FirstLayers(conv, HeldBlocks(conv) if quick else None)
    before, after = rand(2, 4, 2, size, size).double() - 0.5
    for window in windows(size, size):
        changed = before.clone()
        window.of(changed).copy_(window.of(after))
        whole = nn.functional.max_pool2d(conv(changed), 2).relu()
        features, reach = first.features(before), first.reach(window, changed)
        reach.of(features).copy_(first.patch(changed, reach))
        torch.testing.assert_close(features, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "layers",
    [
        (nn.Conv2d(1, 4, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(784, 3)),
        (
            nn.Conv2d(1, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 2, 3),
            nn.Flatten(),
            nn.Linear(288, 3),
        ),
    ],
)
def test_behind_the_first_layers_the_network_answers_as_before_and_is_whole_again(
    layers: tuple[nn.Module, ...],
) -> None:
    asked, images = network(*layers), rand(40, 1, 28, 28)
    head = asked.head
    with torch.inference_mode():
        expected = asked(images)
        with cut_open(asked, images) as first:
            assert first is not None
            torch.testing.assert_close(asked(first.features(images)), expected)
    assert asked.head is head
    with pytest.raises(RuntimeError, match="stop"), cut_open(asked, images):
        raise RuntimeError("stop")
    assert asked.head is head


def watched() -> Single:
    found = network(nn.Conv2d(1, 2, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))
    found.head[0].register_forward_hook(lambda module, given, answer: None)
    return found


@pytest.mark.parametrize(
    "classify",
    [
        nn.Sequential(nn.Conv2d(1, 2, 5), nn.MaxPool2d(2), nn.ReLU()),
        network(nn.Flatten(), nn.Linear(784, 2)),
        network(nn.Conv2d(1, 2, 5, stride=2), nn.MaxPool2d(2), nn.ReLU()),
        network(nn.Conv2d(1, 2, 4), nn.MaxPool2d(2), nn.ReLU()),
        network(nn.Conv2d(1, 2, 5, padding="same"), nn.MaxPool2d(2), nn.ReLU()),
        network(nn.Conv2d(1, 2, 5, padding=2, padding_mode="reflect"), nn.MaxPool2d(2), nn.ReLU()),
        network(nn.Conv2d(1, 2, 5), nn.MaxPool2d(3), nn.ReLU()),
        network(nn.Conv2d(1, 2, 5), nn.BatchNorm2d(2), nn.ReLU()),
        watched(),
    ],
    ids=["no network", "no convolution", "stride", "odd", "same", "reflect", "pooling", "normalised", "watched"],
)
def test_other_networks_are_left_alone(classify: nn.Module) -> None:
    with cut_open(classify, rand(2, 1, 28, 28)) as first:
        assert first is None


@pytest.mark.parametrize("ball", [Linf(0.01), L2(0.2)], ids=repr)
def test_square_finds_the_same_with_patches_as_with_whole_images(ball, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    lenet = Single(at_input(LeNet(classes=3))).double().eval().requires_grad_(False)
    # Centred, so that not one class has all points.
    lenet.head.head.linear3.bias -= lenet.head(rand(60, 1, 28, 28).double()).mean(0)
    images = rand(60, 1, 28, 28).double()
    labels, rng = lenet(images).argmax(1), RowRng(0, torch.arange(60))
    asked = []
    hook = lenet.register_forward_pre_hook(lambda module, given: asked.append(given[0].shape[1:]))
    quick = Square(ball, 150)(lenet, images, labels, rng).points
    # Whoever counts a network's answers still sees them.
    assert set(asked) == {(6, 14, 14)}
    assert 100 < len(asked) <= 151
    hook.remove()
    monkeypatch.setattr(square, "cut_open", lambda classify, images: cut_open(nn.Identity(), images))
    plain = Square(ball, 150)(lenet, images, labels, rng).points
    torch.testing.assert_close(quick, plain, rtol=0, atol=1e-9)
    assert 5 < int((quick != images).flatten(1).any(1).sum()) < 60
    UNIT.check(quick)
