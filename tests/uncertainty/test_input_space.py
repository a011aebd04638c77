import pytest
import torch
from torch import nn

from widemargin.uncertainty.cuts import after
from widemargin.uncertainty.input_space import InputSpace
from widemargin.uncertainty.single import Single


def test_a_network_cut_anywhere_is_seen_from_its_input_on() -> None:
    network = Single(after(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), 1))
    points, seen = torch.randn(5, 3), InputSpace(network)
    assert torch.equal(seen.encode(points), points)
    assert torch.equal(seen(points), network(points))
    network.replicas = 2
    with pytest.raises(ValueError, match="robustness is that of one network, got 2 replicas"):
        InputSpace(network)
