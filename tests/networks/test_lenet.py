import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from widemargin.fast.blocks import _places, fits, pooled_convolution
from widemargin.networks.lenet import LeNet
from widemargin.networks.named import LeNetSpec


def noise(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1))


def build(**sizes: int) -> LeNet:
    return LeNetSpec(**sizes).build(torch.Generator().manual_seed(0))


def count(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_has_as_many_parameters_as_the_papers_table():
    conv1, conv2 = 6 * 1 * 25 + 6, 16 * 6 * 25 + 16
    linear1, linear2, linear3 = 120 * 400 + 120, 84 * 120 + 84, 10 * 84 + 10
    assert count(LeNet()) == conv1 + conv2 + linear1 + linear2 + linear3 == 61_706


def test_computes_the_papers_table():
    network, images = build(), noise(3, 1, 28, 28)
    weights = dict(network.named_parameters())

    def layer(name: str) -> tuple[Tensor, Tensor]:
        return weights[f"{name}.weight"], weights[f"{name}.bias"]

    z = F.max_pool2d(F.conv2d(images, *layer("encoder.conv1"), padding=2).relu(), 2)
    z = F.max_pool2d(F.conv2d(z, *layer("encoder.conv2")).relu(), 2)
    z = F.linear(z.flatten(1), *layer("head.linear1")).relu()
    z = F.linear(F.linear(z, *layer("head.linear2")).relu(), *layer("head.linear3"))
    assert torch.allclose(network(images), z, atol=1e-6)


@pytest.mark.parametrize("side", [4, 8, 11, 12, 13, 28, 32])
def test_takes_square_images_of_any_side_from_four_on(side):
    network = build(classes=3, channels=2, side=side)
    logits = network(noise(2, 2, side, side))
    assert logits.shape == (2, 3)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in network.parameters())


@pytest.mark.parametrize("capacity", [2, 12])
def test_capacity_multiplies_both_convolutions_and_the_first_linear_layer(capacity):
    network = build(capacity=capacity)
    widths = [p.shape[0] for name, p in network.named_parameters() if name.endswith("weight")]
    assert widths == [6 * capacity, 16 * capacity, 120 * capacity, 84, 10]
    assert network(noise(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize("make", [LeNet, LeNetSpec])
def test_refuses_sizes_that_cannot_work(make):
    with pytest.raises(ValueError, match="side must be >= 4, got 3: enlarge or pad"):
        make(side=3)
    for wrong in ({"classes": 1}, {"channels": 0}, {"capacity": 0}):
        with pytest.raises(ValueError, match="needs classes >= 2, channels >= 1 and capacity >= 1, got"):
            make(**wrong)


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
    published = torch.nn.Sequential(*(parts[name] for name in order), network.head)
    answers = []
    for one in (network, published):
        points = images.clone().requires_grad_()
        logits = one(points)
        wanted = [points] if frozen else [points, *network.parameters()]
        answers.append((logits, *torch.autograd.grad(logits.logsumexp(-1).sum(), wanted)))
    for ours, theirs in zip(*answers, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("padding", [0, 2, 4])
@pytest.mark.parametrize(("channels", "height", "width"), [(1, 8, 12), (1, 12, 14), (3, 8, 16), (5, 6, 8)])
def test_frozen_convolutions_agree_with_layers_whatever_the_shape(channels, height, width, padding) -> None:
    conv = torch.nn.Conv2d(channels, 7, 5, padding=padding).double().requires_grad_(False)
    images = noise(16_000 // (channels * height * width) + 1, channels, height, width).double()
    images[:, :, :3] = 0.0
    images.requires_grad_()
    assert fits(conv, torch.nn.MaxPool2d(2), images)
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


def test_who_looks_between_the_layers_sees_them() -> None:
    network, images = build(), noise(3, 1, 28, 28)
    quick, seen = network(images), []
    network.encoder.conv1.register_forward_hook(lambda module, given, answer: seen.append(answer))
    assert torch.allclose(network(images), quick, atol=1e-6)
    assert len(seen) == 1
    traced = torch.fx.symbolic_trace(build())
    assert "encoder.pool1" in {node.target for node in traced.graph.nodes}


def test_an_answer_in_inference_mode_leaves_nothing_behind_that_breaks_a_gradient() -> None:
    _places.cache_clear()
    network, images = LeNet(), torch.rand(64, 1, 28, 28)
    with torch.inference_mode():
        network(images)
    network(images.requires_grad_()).sum().backward()
    assert network.encoder.conv1.weight.grad is not None
