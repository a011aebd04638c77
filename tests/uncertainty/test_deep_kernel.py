from typing import Any

import pytest
import torch

from widemargin import LMS5, Adam, AtInput, Cloud, DeepKernel, DeepKernelGP, LeNetShape, Plan, ResidualShape, Rng
from widemargin.measure.accuracy import accuracy
from widemargin.plan import Updates
from widemargin.recipes import standard
from widemargin.run import Shape
from widemargin.train.loop import train
from widemargin.uncertainty.deep_kernel import check_deep_kernel, k_means
from widemargin.uncertainty.predictive import entropy

CLOUD = LMS5(count=60).draw()
RESIDUAL = ResidualShape(2, 2, 16, 2)


def built(shape: Shape = RESIDUAL, cloud: Cloud | None = CLOUD, draws: int = 8) -> DeepKernel:
    def build(member: int) -> torch.nn.Module:
        return shape.build(Rng.seeded(0).generators[0])

    network = DeepKernelGP(6, draws).network(build, AtInput(), cloud)
    assert isinstance(network, DeepKernel)
    return network


def test_members_are_draws_of_gpytorchs_posterior() -> None:
    network = built(draws=4000).eval()
    with torch.no_grad():
        posterior = network.process(network.features(CLOUD.points[:5]))
        answer = network.logits(CLOUD.points[:5])
    torch.testing.assert_close(answer.mean(0), posterior.mean.mT, rtol=0, atol=0.06)
    torch.testing.assert_close(answer.std(0), posterior.variance.sqrt().mT, rtol=0.05, atol=0.01)


def test_the_penalty_is_the_divergence_per_example() -> None:
    whole, half = built(), built(cloud=Cloud(CLOUD.points[:30], CLOUD.labels[:30]))
    half.load_state_dict(whole.state_dict())
    assert whole.penalty() >= 0
    torch.testing.assert_close(half.penalty(), 2 * whole.penalty())


def test_it_learns_and_doubts_where_it_has_seen_nothing() -> None:
    network = built()
    before = network(CLOUD.points).detach()
    records = list(train(network, CLOUD, standard(), Plan(Updates(60), Adam(0.03))))
    assert records[-1].loss < 0.6 * records[0].loss
    assert accuracy(network, CLOUD) > 0.9
    # A Cholesky factor from before the last update would give the answer of then.
    assert not torch.equal(network.eval()(CLOUD.points), before)
    doubt_near, doubt_far = (entropy(network(scale * CLOUD.points)).mean() for scale in (1.0, 20.0))
    assert doubt_far > doubt_near


def test_images_have_deep_kernels_too() -> None:
    images = Cloud(torch.rand(30, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 10)
    network = built(LeNetShape(side=8), images)
    assert network.logits(images.points).shape == (8, 30, 10)
    without_data = built(LeNetShape(side=8), None)
    without_data.load_state_dict(network.state_dict())
    assert torch.equal(without_data.eval()(images.points), network.eval()(images.points))


def test_k_means_finds_the_clusters_of_its_seed() -> None:
    points = torch.cat([torch.zeros(20, 2), torch.full((30, 2), 5.0)])
    points = points + 0.1 * torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    found = k_means(points, 2, Rng.seeded(1))
    torch.testing.assert_close(found.sort(0).values, torch.tensor([[0.0, 0.0], [5.0, 5.0]]), rtol=0, atol=0.1)
    assert torch.equal(found, k_means(points, 2, Rng.seeded(1)))
    with pytest.raises(ValueError, match=r"^k-means needs 1..50 centres for 50 points, got 51$"):
        k_means(points, 51, Rng.seeded(1))


def test_a_missing_gpytorch_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *arguments: Any, **words: Any) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("widemargin.data.extras.import_module", missing)
    message = r"^a deep kernel needs 'widemargin\[gp\]', which is not installed: pip install 'widemargin\[gp\]'$"
    with pytest.raises(ValueError, match=message):
        check_deep_kernel()


@pytest.mark.parametrize("change", [{"inducing": 0}, {"draws": 0}, {"coefficient": 0.0}])
def test_impossible_kernels_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^inducing and draws must be at least 1 and coefficient > 0, got DeepKernel"):
        DeepKernelGP(**change)
