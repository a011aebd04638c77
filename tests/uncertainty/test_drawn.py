import pytest
import torch

from widemargin import MCDropout, at_input
from widemargin.networks.mlp import MLPSpec
from widemargin.rng import Rng
from widemargin.uncertainty.drawn import PerSearch, PerStep, fresh_draws

POINTS = torch.linspace(-1, 1, 18).view(6, 3)


@pytest.mark.parametrize("renewal", [PerSearch(), PerStep()], ids=repr)
def test_a_training_searches_among_other_members_than_those_that_judge(renewal: PerSearch | PerStep) -> None:
    network = MCDropout(at_input(MLPSpec((3, 8, 2), 0.5).build(Rng.seeded(0).generators[0])), 3, renewal).eval()
    judging = network.logits(POINTS)
    found = []
    for seed in (0, 0, 1):
        with fresh_draws(network, Rng.seeded(seed)):
            found.append([network.logits(POINTS) for _ in range(2)])
    (first, second), (again, _), (other, _) = found
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, judging)
    assert torch.equal(first, second) == (renewal == PerSearch())
    assert torch.equal(network.logits(POINTS), judging)
