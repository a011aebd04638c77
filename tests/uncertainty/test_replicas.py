import pytest
import torch

from widemargin.networks.mlp import MLP
from widemargin.uncertainty.replicas import Replicas

POINTS = torch.linspace(-1, 1, 18).view(6, 3)


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_networks_abreast_answer_for_their_own_block_alone(blocks: int) -> None:
    singles = [MLP(3, 5, 4) for _ in range(blocks)]
    parts = POINTS.chunk(blocks)
    expected = torch.cat([single(part) for single, part in zip(singles, parts, strict=True)])
    network = Replicas(singles)
    torch.testing.assert_close(network.logits(POINTS), expected[None])
    for single, part, again in zip(singles, parts, network.split(), strict=True):
        torch.testing.assert_close(again.logits(part)[0], single(part))
