import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from widemargin.fast.blocks import PooledConvolution, _places, fits, pooled_convolution
from widemargin.networks.lenet import LeNet
from widemargin.networks.named import LeNetSpec


def noise(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1))


def build(**sizes: int) -> LeNet:
    return LeNetSpec(**sizes).build(torch.Generator().manual_seed(0))


def pooled(network: LeNet) -> nn.Module:
    parts = network.encoder
    return nn.Sequential(
        PooledConvolution(parts.conv1, parts.pool1), PooledConvolution(parts.conv2, parts.pool2), network.head
    )


SHAPES = [{}, {"side": 8}, {"side": 12}, {"side": 32, "channels": 3}, {"capacity": 2}, {"side": 14}, {"side": 30}]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_quick_convolutions_agree_with_the_published_layers(sizes: dict[str, int], frozen: bool) -> None:
    network = build(**sizes).double().requires_grad_(not frozen)
    side, channels = sizes.get("side", 28), sizes.get("channels", 1)
    images = noise(16_000 // (channels * side**2) + 1, channels, side, side).double()
    # Where an image is empty all four pixels of a block are equal: the gradient must choose the same one.
    images[:, :, : side // 3] = 0.0
    parts = dict(network.encoder.named_children())
    order = ("conv1", "relu1", "pool1", "conv2", "relu2", "pool2")
    published = nn.Sequential(*(parts[name] for name in order), network.head)
    answers = []
    for one in (pooled(network), published):
        points = images.clone().requires_grad_()
        logits = one(points)
        wanted = [points] if frozen else [points, *network.parameters()]
        answers.append((logits, *torch.autograd.grad(logits.logsumexp(-1).sum(), wanted)))
    for ours, theirs in zip(*answers, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("padding", [0, 2, 4])
@pytest.mark.parametrize(("channels", "height", "width"), [(1, 8, 12), (1, 12, 14), (3, 8, 16), (5, 6, 8)])
def test_frozen_convolutions_agree_with_layers_whatever_the_shape(channels, height, width, padding) -> None:
    conv = nn.Conv2d(channels, 7, 5, padding=padding).double().requires_grad_(False)
    images = noise(16_000 // (channels * height * width) + 1, channels, height, width).double()
    images[:, :, :3] = 0.0
    images.requires_grad_()
    assert fits(conv, nn.MaxPool2d(2), images)
    quick, layers = pooled_convolution(conv, images), F.max_pool2d(conv(images), 2).relu()
    weights = noise(*layers.shape).double() - 0.5
    assert torch.allclose(quick, layers, rtol=1e-9, atol=1e-12)
    ours, theirs = (torch.autograd.grad((weights * answer).sum(), images)[0] for answer in (quick, layers))
    assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_the_quick_way_is_taken_for_the_papers_images() -> None:
    network = build()
    assert fits(network.encoder.conv1, network.encoder.pool1, noise(32, 1, 28, 28))
    assert fits(network.encoder.conv2, network.encoder.pool2, noise(32, 6, 14, 14).requires_grad_())
    assert not fits(network.encoder.conv1, network.encoder.pool1, noise(32, 1, 27, 27))
    assert not fits(network.encoder.conv1, network.encoder.pool1, noise(2, 1, 28, 28))


def test_an_answer_in_inference_mode_leaves_nothing_behind_that_breaks_a_gradient() -> None:
    _places.cache_clear()
    network, images = LeNet(), torch.rand(64, 1, 28, 28)
    quick = pooled(network)
    with torch.inference_mode():
        quick(images)
    quick(images.requires_grad_()).sum().backward()
    assert network.encoder.conv1.weight.grad is not None
