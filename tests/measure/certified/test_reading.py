"""Networks of images that begin with a flat layer, however it is written and exported."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certified_cases import NORMS, nearest_wrong
from widemargin import Dataset, Linf, Single, at_input
from widemargin.io.export import write_network
from widemargin.io.load import load_model
from widemargin.measure.certified import certified, certified_radius
from widemargin.networks.mlp import MLP
from widemargin.networks.resnet import DropoutResNet18, PreActResNet18
from widemargin.rng import Rng
from widemargin.uncertainty.cuts import before_head
from widemargin.uncertainty.ensemble import Ensemble
from widemargin.uncertainty.network import Network


class FlatFirst(nn.Module):
    """Somebody's own network of images, which are made flat before anything else."""

    def __init__(self, flat: Callable[[Tensor], Tensor], first: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.flat, self.first, self.last = flat, first, last

    def forward(self, images: Tensor) -> Tensor:
        return self.last(F.relu(self.first(self.flat(images))))


FLATTENED: dict[str, Callable[[Tensor], Tensor]] = {
    "nn.Flatten": nn.Flatten(),
    "flatten": lambda images: images.flatten(1),
    "torch.flatten": lambda images: torch.flatten(images, 1),
    "view by len": lambda images: images.view(len(images), -1),
    "view by size": lambda images: images.view(images.size(0), -1),
    "view by features": lambda images: images.view(-1, 32),
    "reshape by shape": lambda images: images.reshape(images.shape[0], -1),
    "reshape by features": lambda images: torch.reshape(images, (-1, 32)),
}


# torch.export takes the length for a constant.
EXPORTED = [name for name in FLATTENED if name != "view by len"]


def flat_first(name: str) -> tuple[nn.Module, nn.Module, Dataset]:
    """A network of images, the same of flat images, and images with its labels."""
    with Rng.seeded(1).as_global():
        first, last, points = nn.Linear(32, 10), nn.Linear(10, 3), torch.rand(3, 2, 4, 4)
    flat = nn.Sequential(first, nn.ReLU(), last)
    network = (
        nn.Sequential(nn.Flatten(), first, nn.ReLU(), last)
        if name == "nn.Sequential"
        else FlatFirst(FLATTENED[name], first, last)
    )
    with torch.no_grad():
        return network.eval(), flat, Dataset(points, network(points).argmax(1))


def check_as_flat(network: Network | nn.Module, flat: nn.Module, images: Dataset) -> None:
    for norm in NORMS:
        wanted = certified_radius(flat, Dataset(images.points.flatten(1), images.labels), norm(1.0))
        assert (wanted > 0).all()
        torch.testing.assert_close(certified_radius(network, images, norm(1.0)), wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["nn.Sequential", *FLATTENED])
def test_images_made_flat_have_the_bounds_of_flat_points(name: str) -> None:
    check_as_flat(*flat_first(name))


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("name", ["nn.Sequential", *(pytest.param(name, marks=pytest.mark.slow) for name in EXPORTED)])
def test_so_they_do_once_exported(name: str, suffix: str, tmp_path: Path) -> None:
    network, flat, images = flat_first(name)
    write_network(network, (2, 4, 4), tmp_path / f"model{suffix}")
    check_as_flat(load_model(str(tmp_path / f"model{suffix}")).network, flat, images)


def test_a_linear_layer_may_see_rows_of_an_image() -> None:
    with Rng.seeded(1).as_global():
        network = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)).double()
        points = torch.rand(4, 2, 4, 4, dtype=torch.float64)
    cloud = Dataset(points, network(points).argmax(1))
    for norm in NORMS:
        radius = certified_radius(network, cloud, norm(1.0))
        assert (radius > 0).all()
        assert (radius <= nearest_wrong(network, cloud, norm(1.0), 0)).all()


@pytest.mark.parametrize("make", [PreActResNet18, DropoutResNet18])
def test_residual_networks_of_18_layers(make: Callable[..., nn.Module]) -> None:
    with Rng.seeded(1).as_global():
        network, points = make(3, 1, 2), torch.rand(1, 1, 8, 8)
    network.eval()
    cloud = Dataset(points, network(points).argmax(1))
    radius = certified_radius(Single(before_head(network)), cloud, Linf(0.5))
    assert (radius > 0).all()
    for point, label, r in zip(points, cloud.labels, radius, strict=True):
        moved = (point + float(r) * (torch.rand(300, *point.shape) * 2 - 1).sign()).clamp(0, 1)
        assert (network(moved).argmax(1) == label).all()


class Branching(nn.Module):
    def forward(self, points: Tensor) -> Tensor:
        return points if points.sum() > 0 else -points


class Squared(nn.Module):
    def forward(self, points: Tensor) -> Tensor:
        return points * points


def test_what_cannot_be_certified_is_said() -> None:
    cloud = Dataset(torch.rand(2, 3), torch.tensor([0, 1]))

    def refuse(network: nn.Module, said: str) -> None:
        with pytest.raises(ValueError, match=said):
            certified(network, cloud, Linf(0.1))

    refuse(nn.Sequential(nn.Linear(3, 3), nn.Tanh()), "Tanh")
    refuse(Branching(), "traceable")
    refuse(Squared(), "'mul', which is no linear function")
    refuse(nn.BatchNorm1d(3, track_running_stats=False), "mixes the points")
    refuse(Ensemble([Single(at_input(MLP(3, 4, 2))) for _ in range(2)]), "one member")
    hooked = nn.Sequential(nn.Linear(3, 3))
    hooked[0].register_forward_hook(lambda module, given, found: found + 1)
    refuse(hooked, "has hooks")
    with pytest.raises(ValueError, match="lie in the box"):
        certified(MLP(3, 4, 2), Dataset(2 + cloud.points, cloud.labels), Linf(0.1))
