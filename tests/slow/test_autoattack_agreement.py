"""Ours and pyautoattack's standard, with all of their steps, on the same points of the same trained network."""

import pytest
import torch
from torch import nn

from widemargin import L2, Linf, Single, at_input, pgd
from widemargin.data.dataset import Dataset
from widemargin.data.images import ImageSet
from widemargin.measure.autoattack import autoattack
from widemargin.networks.lenet import LeNet
from widemargin.perturb.balls import Ball
from widemargin.rng import Rng


@pytest.fixture(scope="module")
def trained() -> tuple[Single, Dataset]:
    """A LeNet for the 8 x 8 digits, and the test's first 60."""
    parts = ImageSet("digits").draw()
    torch.manual_seed(0)
    network = Single(at_input(LeNet(side=8)))
    method = pgd(Linf(0.1), 0.03, 5)
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    rng = torch.Generator().manual_seed(0)
    for update in range(400):
        inputs, labels = parts.train[torch.randint(len(parts.train), (64,), generator=rng)]
        moved = method.perturb(network, inputs, labels, Rng.seeded(update))
        optimizer.zero_grad()
        method.loss_at(network, inputs, labels, moved).backward()
        optimizer.step()
    return network.eval(), Dataset(*parts.test[torch.arange(60)])


@pytest.mark.slow
@pytest.mark.parametrize("ball", [Linf(0.1), L2(0.6)], ids=repr)
def test_no_weaker_than_the_standard(trained: tuple[Single, Dataset], ball: Ball) -> None:
    outside = pytest.importorskip("pyautoattack")
    network, cloud = trained
    whole: nn.Module = network
    own = autoattack(network, cloud, ball)
    other = outside.AutoAttack(whole, norm=type(ball).__name__, eps=ball.radius, seed=0)
    found, _ = other.run_standard_evaluation(cloud.points, cloud.labels)
    with torch.no_grad():
        standing = network(found).argmax(1) == cloud.labels
    assert 0 < int(standing.sum()) < 60
    assert int((own.standing & ~standing).sum()) == 0, "broken by the other alone"
    assert int((~own.standing & standing).sum()) <= 2
