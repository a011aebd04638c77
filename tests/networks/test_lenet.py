import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

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


def test_a_layer_computes_what_it_says() -> None:
    network, images = build(), noise(64, 1, 28, 28)
    answer = images
    for layer in [*network.encoder, *network.head]:
        answer = layer(answer)
    assert torch.equal(network(images), answer)
