import pytest
import torch
from torch import nn

from widemargin.data.dataset import Dataset
from widemargin.measure.certified import certified_radius
from widemargin.perturb.balls import L2, OPEN
from widemargin.uncertainty.scaling import Scaled, Scaling

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
