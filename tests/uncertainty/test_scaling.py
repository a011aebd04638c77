import pytest
import torch
from torch import nn

from widemargin.data.dataset import Dataset
from widemargin.measure.certified import certified_radius
from widemargin.measure.scaling import fit_scaling
from widemargin.networks.mlp import MLPSpec
from widemargin.perturb.balls import L2, OPEN
from widemargin.rng import Rng
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.estimators import AtInput, DeepKernelSpec
from widemargin.uncertainty.exportable import plain
from widemargin.uncertainty.scaling import Scaled, Scaling
from widemargin.uncertainty.single import Single

VECTOR = Scaling("vector", (2.0, 0.5), (0.25, -0.25))


class Named(nn.Module):
    """Logits in a dict."""

    def forward(self, points: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": points}


def test_logits_are_scaled_class_by_class() -> None:
    points = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
    expected = torch.tensor([[2.25, 0.75], [6.25, -2.25]])
    assert torch.equal(VECTOR(points), expected)
    assert torch.equal(Scaled(Named(), VECTOR)(points), expected)
    assert Scaled(nn.Linear(2, 2).double(), VECTOR)(points.double()).dtype == torch.float64


def test_a_scaling_is_said_and_kept() -> None:
    assert str(Scaling("temperature", (0.5, 0.5), (0.0, 0.0))) == "temperature 2"
    assert Scaling.from_dict(VECTOR.to_dict()) == VECTOR
    with pytest.raises(ValueError, match="a weight and a bias for each of 2 classes or more, got 2 and 1"):
        Scaling("vector", (1.0, 1.0), (0.0,))


def test_one_draw_is_scaled_as_many_are_and_as_its_export_is() -> None:
    """An export returns the log of the mean probability, and an audit has more draws: logits are something else."""
    cloud = Dataset(torch.randn(12, 2, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 2)
    one = DeepKernelSpec(4, 1).network(
        lambda _: MLPSpec((2, 4, 2)).build(Rng.seeded(0).generators[0]), AtInput(), cloud
    )
    one.eval()
    assert one.logits(one.encode(cloud.points)).shape == (1, 12, 2)
    scaled = Scaled(one, VECTOR)
    exported = Scaled(plain(one), VECTOR)
    torch.testing.assert_close(scaled(cloud.points), exported(cloud.points), rtol=0, atol=1e-5)
    fitted = fit_scaling(one, Dataset(cloud.points, (one(cloud.points).argmax(1) + (torch.arange(12) % 3 == 0)) % 2))
    assert fitted.kind == "temperature"
    # A network that draws nothing is scaled by its logits, so that it stays one linear layer more.
    linear = Single(at_input(nn.Linear(2, 2)))
    torch.testing.assert_close(Scaled(linear, VECTOR)(cloud.points), VECTOR(linear.head(cloud.points)))


def test_a_scaled_network_is_certified_as_any() -> None:
    """A temperature moves no boundary."""
    linear = nn.Linear(3, 2)
    points = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    examples = Dataset(points, linear(points).argmax(1), (0, 1))
    plain, scaled = (
        certified_radius(net, examples, L2(10.0, OPEN))
        for net in (linear, Scaled(linear, Scaling("temperature", (0.25, 0.25), (0.0, 0.0))))
    )
    torch.testing.assert_close(plain, scaled, rtol=1e-4, atol=1e-5)
