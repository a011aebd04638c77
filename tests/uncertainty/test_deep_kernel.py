import sys

import pytest
import torch

from widemargin import Adam, Dataset, DeepKernel, Plan
from widemargin.data.images import ImageSet
from widemargin.data.toy import LMS5
from widemargin.measure.accuracy import accuracy
from widemargin.networks.named import LeNetSpec, ResNetSpec
from widemargin.networks.spectral import ResidualMLPSpec
from widemargin.recipes import standard
from widemargin.rng import Rng
from widemargin.runs.prepare import prepare
from widemargin.runs.run import NetworkSpec, Run
from widemargin.training.loop import train
from widemargin.training.plan import Cosine, Updates
from widemargin.uncertainty.deep_kernel import _forget, check_deep_kernel, first_places, k_means, marginals
from widemargin.uncertainty.estimators import AtInput, DeepKernelSpec
from widemargin.uncertainty.predictive import entropy

CLOUD = LMS5(count=60).draw()


IMAGES = Dataset(torch.rand(30, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 10)


PLAN = Plan(Updates(400), Adam(4e-3, Cosine()), batch=32)


RESIDUAL = ResidualMLPSpec(2, 2, 16, 2)


def built(shape: NetworkSpec = RESIDUAL, cloud: Dataset | None = CLOUD, draws: int = 8) -> DeepKernel:
    def build(member: int) -> torch.nn.Module:
        return shape.build(Rng.seeded(0).generators[0])

    network = DeepKernelSpec(6, draws).network(build, AtInput(), cloud)
    assert isinstance(network, DeepKernel)
    return network


def test_members_are_draws_of_gpytorchs_posterior() -> None:
    network = built(draws=4000).eval()
    with torch.no_grad():
        posterior = network.process(network.features(CLOUD.points[:5]))
        answer = network.logits(CLOUD.points[:5])
    torch.testing.assert_close(answer.mean(0), posterior.mean.mT, rtol=0, atol=0.06)
    torch.testing.assert_close(answer.std(0), posterior.variance.sqrt().mT, rtol=0.05, atol=0.01)


def test_marginals_are_gpytorchs_also_after_training() -> None:
    network = built(LeNetSpec(side=8), IMAGES)
    list(train(network, IMAGES, standard(), Plan(Updates(5), Adam(0.01))))
    with torch.no_grad():
        features = network.features(IMAGES.points)
        _forget(network.process)
        posterior, (mean, variance) = network.process(features), marginals(network.process, features)
    torch.testing.assert_close(mean, posterior.mean, rtol=0, atol=1e-6)
    torch.testing.assert_close(variance, posterior.variance, rtol=0, atol=1e-6)


def test_every_part_of_the_process_learns() -> None:
    network = built()
    network.logits(CLOUD.points).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in network.parameters())


def test_the_penalty_is_the_divergence_per_example() -> None:
    whole, half = built(), built(cloud=Dataset(CLOUD.points[:30], CLOUD.labels[:30]))
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
    network = built(LeNetSpec(side=8), IMAGES)
    assert network.logits(IMAGES.points).shape == (8, 30, 10)
    without_data = built(LeNetSpec(side=8), None)
    without_data.load_state_dict(network.state_dict())
    assert torch.equal(without_data.eval()(IMAGES.points), network.eval()(IMAGES.points))


def test_a_lenet_learns_digits() -> None:
    """Its first features hardly differ: a length scale of their distances alone leaves it at 10 % for ever."""
    trial = Run(ImageSet("digits"), LeNetSpec(side=8), standard(), PLAN, estimator=DeepKernelSpec(draws=5))
    task = prepare(trial)
    list(train(task.network, task.train, task.method, task.plan))
    assert task.test is not None
    assert accuracy(task.network, task.test) > 0.75


def test_inducing_points_are_where_a_network_with_batch_norm_trains() -> None:
    """In eval mode it would see them through running statistics of nothing, a hundred times smaller."""
    network = built(ResNetSpec(channels=1, width=4), IMAGES)
    centers, length = network.process.variational_strategy.inducing_points[0], network.process.kernel.base_kernel
    network.train()
    with torch.no_grad():
        features = network.features(network.encode(IMAGES.points))
        far = torch.cdist(features, centers).min(1).values
    assert far.max() < length.lengthscale.max()


def test_the_first_length_is_that_of_the_distances_where_features_differ() -> None:
    features = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    _, length = first_places(features, 5, Rng.seeded(0))
    assert length == pytest.approx(float(torch.pdist(features).mean()))
    _, length = first_places(features + 100, 5, Rng.seeded(0))
    assert length == pytest.approx(float((features + 100).norm(dim=1).mean()) / 2)


def test_k_means_finds_the_clusters_of_its_seed() -> None:
    points = torch.cat([torch.zeros(20, 2), torch.full((30, 2), 5.0)])
    points = points + 0.1 * torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    found = k_means(points, 2, Rng.seeded(1))
    torch.testing.assert_close(found.sort(0).values, torch.tensor([[0.0, 0.0], [5.0, 5.0]]), rtol=0, atol=0.1)
    assert torch.equal(found, k_means(points, 2, Rng.seeded(1)))
    with pytest.raises(ValueError, match=r"^k-means needs 1..50 centres for 50 points, got 51$"):
        k_means(points, 51, Rng.seeded(1))


def test_a_missing_gpytorch_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gpytorch", None)
    message = r"^a deep kernel needs 'widemargin\[gp\]', which is not installed: pip install 'widemargin\[gp\]'$"
    with pytest.raises(ValueError, match=message):
        check_deep_kernel()
