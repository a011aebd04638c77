import torch

from noisy import POINTS, noisy
from widemargin.measure.eot import Draws, eot


def test_a_network_that_draws_gets_fixed_draws_which_no_batch_changes() -> None:
    network = noisy()
    assert not torch.equal(network(POINTS.points), network(POINTS.points))
    found = eot(network, POINTS)
    assert found.draws == Draws(8, 64)
    for one in (found.climbed, found.network):
        before = torch.random.get_rng_state()
        whole, again = one(POINTS.points), one(POINTS.points)
        assert torch.equal(torch.random.get_rng_state(), before)
        assert torch.equal(whole, again)
        assert torch.allclose(one(POINTS.points[7:9]), whole[7:9], atol=1e-6)
        members = one.logits(POINTS.points)
        assert len({round(float(value), 5) for value in members[:, 0, 0]}) == len(members), "members differ"
