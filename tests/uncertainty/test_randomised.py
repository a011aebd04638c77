from collections.abc import Callable

import torch
from torch import Tensor, nn

from widemargin import Dataset, Single, at_input
from widemargin.measure.eot import Draws, eot
from widemargin.uncertainty.network import Network

POINTS = Dataset(torch.linspace(-1, 1, 41)[:, None], (torch.linspace(-1, 1, 41) > 0).long())


class Noisy(nn.Module):
    """Right where the single number's sign is the class; noise on the logits makes single answers flip."""

    def __init__(self, noise: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.noise = noise

    def forward(self, points: Tensor) -> Tensor:
        return torch.cat([-points, points], 1) + self.noise(points)


def noisy(noise: Callable[[Tensor], Tensor] = lambda x: torch.randn(x.shape[0], 2)) -> Network:
    return Single(at_input(Noisy(noise))).eval()


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
