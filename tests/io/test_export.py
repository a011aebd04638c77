import json
from pathlib import Path

import jaxtyping
import pytest
import torch
from torch import Generator, nn

from onnx_files import answer_and_gradient, drawn, helper, onnx, written
from small_runs import net
from widemargin import Dataset, Linf, MCDropout, laplace
from widemargin.data.toy import LMS5
from widemargin.io.export import write_network
from widemargin.io.load import load_model
from widemargin.measure.certified import certified_radius
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.named import LeNetSpec, ResNetSpec
from widemargin.networks.spectral import ResidualMLPSpec
from widemargin.rng import Rng
from widemargin.runs.run import NetworkSpec
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.ensemble import Ensemble
from widemargin.uncertainty.estimators import AtInput, DeepKernelSpec
from widemargin.uncertainty.exportable import plain
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.scaling import Scaled, Scaling
from widemargin.uncertainty.single import Single


@pytest.mark.parametrize("kind", ["ensemble", "dropout", "laplace"])
def test_members_leave_the_library_as_one_network(kind: str, tmp_path: Path) -> None:
    cloud = LMS5(count=40).draw()
    mlp = MLPSpec((2, 8, 2), dropout=0.3 * (kind == "dropout")).build(Rng.seeded(0).generators[0])
    networks = {
        "ensemble": lambda: Ensemble([mlp, net()]),
        "dropout": lambda: MCDropout(at_input(mlp), 3),
        "laplace": lambda: laplace(at_input(mlp), cloud, 3),
    }
    network = networks[kind]().eval()
    write_network(network, (2,), tmp_path / "model.pt2")
    again = torch.export.load(tmp_path / "model.pt2").module()
    torch.testing.assert_close(again(cloud.points), network(cloud.points))


class ByLength(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        # A decision by values cannot be traced.
        return self.linear(points) if bool(points.sum() > 0) else -self.linear(points)


def test_a_network_that_cannot_be_traced_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot be written as \.pt2 for batches of any size") as refused:
        write_network(ByLength().eval(), (4,), tmp_path / "model.pt2")
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def members() -> Ensemble:
    return Ensemble([MLPSpec((2, 4, 3)).build(Generator().manual_seed(seed)) for seed in (0, 1)])


def deep_kernel(shape: NetworkSpec, points: tuple[int, ...]) -> Network:
    pytest.importorskip("gpytorch")
    cloud = Dataset(drawn(30, *points), torch.arange(30) % 2)
    return DeepKernelSpec(6, 4).network(lambda _: shape.build(Generator().manual_seed(0)), AtInput(), cloud)


NETWORKS = {
    "mlp": (lambda: MLPSpec((2, 16, 3)).build(Generator().manual_seed(0)), (2,)),
    "lenet": (lambda: LeNetSpec(side=12).build(Generator().manual_seed(0)), (1, 12, 12)),
    "resnet": (lambda: ResNetSpec(width=8).build(Generator().manual_seed(0)), (3, 8, 8)),
    "ensemble": (members, (2,)),
    "deep kernel": (lambda: deep_kernel(ResidualMLPSpec(2, 3, 8, 2), (2,)), (2,)),
}


SLOW_NETWORKS = {
    "lenet's kernel": (lambda: deep_kernel(LeNetSpec(side=12), (1, 12, 12)), (1, 12, 12)),
    "resnet's kernel": (lambda: deep_kernel(ResNetSpec(width=8), (3, 8, 8)), (3, 8, 8)),
}


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("name", [*NETWORKS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_NETWORKS)])
def test_an_exported_network_comes_back(name: str, suffix: str, tmp_path: Path) -> None:
    make, shape = (NETWORKS | SLOW_NETWORKS)[name]
    network = make().eval()
    write_network(network, shape, tmp_path / f"model{suffix}")
    place = str(tmp_path / f"model{suffix}")
    model = load_model(place)
    assert (model.name, model.run, model.notes) == (place, None, ())
    assert not any(module.training for module in model.network.modules())
    for rows in (1, 2, 7):
        points = drawn(rows, *shape)
        wanted, wanted_gradient = answer_and_gradient(network, points)
        found, gradient = answer_and_gradient(lambda x: model.network.logits(model.network.encode(x))[0], points)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
        torch.testing.assert_close(gradient, wanted_gradient, atol=1e-4, rtol=0)


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_an_exported_network_is_scaled_and_its_metadata_say_so(suffix: str, tmp_path: Path) -> None:
    make, shape = NETWORKS["mlp"]
    network, scaling = make().eval(), Scaling("vector", (2.0, 1.0, 0.5), (0.1, 0.0, -0.1))
    path = tmp_path / f"model{suffix}"
    write_network(Scaled(plain(network), scaling), shape, path, {"scaling": scaling.to_dict()})
    points, model = drawn(5, *shape), load_model(str(path)).network
    torch.testing.assert_close(model.logits(model.encode(points))[0], scaling(network(points)), atol=1e-5, rtol=0)
    extra = {"scaling.json": ""}
    if suffix == ".pt2":
        torch.export.load(path, extra_files=extra)
    else:
        extra["scaling.json"] = {one.key: one.value for one in onnx.load(path).metadata_props}["scaling"]
    assert Scaling.from_dict(json.loads(extra["scaling.json"])) == scaling


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_an_exported_network_has_the_certificates_of_the_original(name: str, suffix: str, tmp_path: Path) -> None:
    make, shape = NETWORKS[name]
    network = make().eval()
    write_network(network, shape, tmp_path / f"model{suffix}")
    points = drawn(4, *shape).sigmoid()
    with torch.no_grad():
        cloud = Dataset(points, network(points).argmax(1))
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        wanted = certified_radius(Single(at_input(network)), cloud, Linf(0.5))
        found = certified_radius(load_model(str(tmp_path / f"model{suffix}")).network, cloud, Linf(0.5))
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    assert (wanted > 0).all()
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


def test_an_operator_without_certificate_is_named_in_one_sentence(tmp_path: Path) -> None:
    cloud = Dataset(drawn(2, 3).sigmoid(), torch.tensor([0, 1]))
    write_network(nn.Sequential(nn.Linear(3, 3), nn.Tanh()), (3,), tmp_path / "m.pt2")
    places = [str(tmp_path / "m.pt2"), written(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])])]
    for place in places:
        with pytest.raises(ValueError, match="no certificate for a network with the operator 'tanh'") as refused:
            certified_radius(load_model(place).network, cloud, Linf(0.5))
        assert not any(word in str(refused.value) for word in ("\n", "%", "fx", "default"))
