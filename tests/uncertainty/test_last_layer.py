import pytest
import torch
from torch import nn

from widemargin.uncertainty.last_layer import pop_last_linear


def test_without_its_last_layer_a_network_returns_features() -> None:
    inner = nn.Sequential(nn.ReLU(), nn.Linear(4, 2), nn.Flatten())
    network, points = nn.Sequential(nn.Linear(3, 4), inner), torch.randn(5, 3)
    answer = network(points)
    last = pop_last_linear(network)
    assert last.in_features == 4
    torch.testing.assert_close(last(network(points)), answer)
    with pytest.raises(ValueError, match=r"got none in a Linear: wrap it in nn.Sequential"):
        pop_last_linear(nn.Linear(3, 2))
