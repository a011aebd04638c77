import math

import pytest
import torch
from torch import Tensor, nn

from widemargin import Adam, Dataset, Plan, Single, Updates, at_input, laplace
from widemargin.data.toy import LMS5
from widemargin.measure.accuracy import accuracy
from widemargin.networks.mlp import MLPSpec
from widemargin.recipes import standard
from widemargin.rng import Rng
from widemargin.training.loop import train
from widemargin.uncertainty.cuts import before_head
from widemargin.uncertainty.laplace import _posterior, with_one

CLOUD = LMS5(count=60).draw()


def network(*layers: nn.Module) -> nn.Sequential:
    with Rng.seeded(0).as_global():
        return nn.Sequential(*layers)


def linear(features: int, classes: int, points: Tensor) -> tuple[nn.Sequential, Dataset]:
    with Rng.seeded(0).as_global():
        whole = nn.Sequential(nn.Linear(features, classes)).double()
    return whole, Dataset(points.double(), torch.arange(len(points)) % classes)


def full(last: nn.Linear, points: Tensor, precision: float) -> Tensor:
    """The whole Gauss-Newton matrix, summed point by point."""
    total = precision * torch.eye(last.weight.numel() + len(last.bias), dtype=torch.float64)
    for point in with_one(points):
        p = last(point[:-1]).softmax(-1)
        total += torch.kron(p.diag() - torch.outer(p, p), torch.outer(point, point))
    return total.detach()


def test_the_draws_have_the_covariance_of_the_posterior() -> None:
    """All points the same, so that the Kronecker form is exact."""
    whole, cloud = linear(2, 3, torch.tensor([[0.5, -1.0]]).repeat(9, 1))
    offsets = laplace(at_input(whole), cloud, 40_000, precision=2.0).offsets.flatten(1)
    expected = full(whole[0], cloud.points, 2.0).inverse()
    torch.testing.assert_close(offsets.mean(0), torch.zeros(9).double(), rtol=0, atol=0.02)
    torch.testing.assert_close(offsets.mT.cov(), expected, rtol=0, atol=0.02)


def test_the_kronecker_form_has_the_trace_of_the_full_one_for_equal_predictions() -> None:
    whole, cloud = linear(2, 3, torch.randn(30, 2, generator=torch.Generator().manual_seed(0)))
    nn.init.zeros_(whole[0].weight)
    found = _posterior(nn.Identity(), nn.Sequential(nn.Identity()), whole[0], cloud, 1.0)
    curvature = torch.kron(found.class_curvature, found.feature_curvature).sort().values
    exact = torch.linalg.eigvalsh(full(whole[0], cloud.points, 0.0))
    torch.testing.assert_close(curvature, exact, rtol=0, atol=1e-9)


def test_the_evidence_chooses_a_precision_and_more_precision_means_less_doubt() -> None:
    mlp = MLPSpec((2, 8, 2)).build(Rng.seeded(0).generators[0])
    list(train(Single(at_input(mlp)), CLOUD, standard(), Plan(Updates(150), Adam(0.02))))

    def spread(precision: float | None) -> float:
        return laplace(at_input(mlp), CLOUD, 20, precision).logits(CLOUD.points).std(0).mean().item()

    given = [spread(precision) for precision in (1e-3, 1.0, 100.0)]
    assert given[0] > given[1] > given[2]
    assert given[0] > spread(None) > given[2]
    found = laplace(at_input(mlp), CLOUD, 20)
    assert accuracy(found, CLOUD) >= accuracy(Single(at_input(mlp)), CLOUD) - 0.05
    sure, less_sure = (answer(50 * CLOUD.points).softmax(-1).amax(-1).mean() for answer in (mlp, found))
    assert sure > less_sure


def test_it_is_a_copy_wherever_it_is_cut_and_without_bias() -> None:
    mlp = MLPSpec((2, 8, 2)).build(Rng.seeded(0).generators[0])
    before = [parameter.clone() for parameter in mlp.parameters()]
    answers = [laplace(cut, CLOUD, 4)(CLOUD.points) for cut in (at_input(mlp), before_head(mlp))]
    torch.testing.assert_close(*answers)
    assert all(torch.equal(a, b) for a, b in zip(mlp.parameters(), before, strict=True))
    unbiased = network(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2, bias=False))
    assert laplace(at_input(unbiased), CLOUD, 4).logits(CLOUD.points).shape == (4, 60, 2)


@pytest.mark.parametrize(
    ("layers", "arguments", "message"),
    [
        ((nn.Linear(2, 2), nn.ReLU()), {}, "the network must end in its last nn.Linear, got other layers behind it"),
        ((nn.ReLU(),), {}, "the network must end in an nn.Linear that is a submodule, got none"),
        ((nn.Linear(2, 2),), {"draws": 0}, "draws must be a whole number of at least 1, got 0"),
        ((nn.Linear(2, 2),), {"precision": math.inf}, r"precision must be in \(0, inf\), got inf"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    layers: tuple[nn.Module, ...], arguments: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        laplace(at_input(network(*layers)), CLOUD, **{"draws": 3, **arguments})
