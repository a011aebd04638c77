"""What is written to a file answers as the network does, and holds neither gpytorch nor anything that draws."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from widemargin import Dataset, DeepKernel
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.named import LeNetSpec, ResNetSpec
from widemargin.networks.spectral import ResidualMLPSpec
from widemargin.rng import Rng
from widemargin.runs.run import NetworkSpec
from widemargin.uncertainty.estimators import AtInput, BeforeHead, DeepKernelSpec, Place
from widemargin.uncertainty.exportable import PlainKernel, plain

PLANE, IMAGES = (2,), (1, 8, 8)


WEIGHTS = ("weight", "bias")


KERNELS: dict[str, tuple[NetworkSpec, tuple[int, ...], Place]] = {
    "residual": (ResidualMLPSpec(2, 2, 16, 2), PLANE, AtInput()),
    "mlp": (MLPSpec((2, 16, 3)), PLANE, AtInput()),
    "lenet": (LeNetSpec(side=8), IMAGES, AtInput()),
    "latent lenet": (LeNetSpec(side=8), IMAGES, BeforeHead()),
    "resnet": (ResNetSpec(channels=1, width=4), IMAGES, AtInput()),
}


def drawn(rows: int, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(seed))


def deep_kernel(name: str, seed: int) -> DeepKernel:
    """With every parameter moved somewhere, as training would, and batch-norm that has seen something."""
    shape, points, place = KERNELS[name]
    cloud = Dataset(drawn(40, points, seed), torch.arange(40) % 2)
    network = DeepKernelSpec(12, 5).network(lambda _: shape.build(Rng.seeded(seed).generators[0]), place, cloud)
    assert isinstance(network, DeepKernel)
    network(cloud.points)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
    return network.eval()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_a_plain_kernel_answers_as_the_deep_one(name: str, seed: int) -> None:
    network = deep_kernel(name, seed)
    twin = plain(network)
    assert isinstance(twin, PlainKernel)
    assert not any(type(part).__module__.startswith("gpytorch") for part in twin.modules())
    assert not any(map(parametrize.is_parametrized, twin.modules()))
    for rows in (1, 5, 300):
        points = drawn(rows, KERNELS[name][1], 7).requires_grad_()
        answers = [ask(points) for ask in (twin, network)]
        torch.testing.assert_close(*answers, rtol=0, atol=1e-5)
        torch.testing.assert_close(
            *(torch.autograd.grad(answer[:, 0].sum(), points)[0] for answer in answers), rtol=0, atol=1e-4
        )


def test_the_network_itself_stays_as_it_was() -> None:
    network, points = deep_kernel("resnet", 0).train(), drawn(5, IMAGES)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    assert plain(network).training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    # Its layers are still bounded ones, that learn.
    network(points).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_a_bounded_layer_has_the_weight_that_it_has_become() -> None:
    network = ResidualMLPSpec(2, 2, 8, 1, coefficient=0.1).build(torch.Generator().manual_seed(0)).eval()
    twin = plain(network)
    assert twin.state_dict().keys() == {f"{layer}.{part}" for layer in ("0", "1.linear", "2") for part in WEIGHTS}
    assert torch.linalg.matrix_norm(twin.get_parameter("1.linear.weight"), 2) <= 0.1 + 1e-4
    assert torch.equal(twin(drawn(5, PLANE)), network(drawn(5, PLANE)))


def test_every_parametrised_weight_is_settled() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3)).eval()
    parametrize.register_parametrization(layer, "bias", nn.Softplus(), unsafe=True)
    twin = plain(layer)
    assert type(twin) is nn.Linear
    assert twin.state_dict().keys() == set(WEIGHTS)
    assert torch.equal(twin(drawn(5, PLANE)), layer(drawn(5, PLANE)))


class Twice(nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return 2 * value


def test_what_is_settled_is_trained_no_more_whatever_it_was() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
    parametrize.register_parametrization(network[0], "weight", Twice())
    parametrize.register_parametrization(network[1], "running_var", Twice())
    points = drawn(3, (1, 5, 5)).requires_grad_()
    twin = plain(network)
    torch.testing.assert_close(twin(points), network(points))
    twin(points).sum().backward()
    assert points.grad is not None


def test_a_deep_kernel_inside_another_network_becomes_plain() -> None:
    """It may stand behind the encoding of a table's rows."""
    pytest.importorskip("gpytorch")
    cloud = Dataset(torch.randn(30, 3), torch.arange(30) % 2)
    spec = ResidualMLPSpec(3, 2, 8, 2)
    kernel = DeepKernelSpec(6, 4).network(lambda _: spec.build(torch.Generator().manual_seed(0)), AtInput(), cloud)
    whole = nn.Sequential(nn.Identity(), kernel).eval()
    points = torch.randn(4, 3)
    with torch.no_grad():
        copied = plain(whole)
        torch.testing.assert_close(copied(points), whole(points), rtol=0, atol=1e-5)
    assert isinstance(list(copied.children())[1], PlainKernel)
