import pytest
import torch
from torch import nn

from diagnosed import FLAT
from widemargin.measure.diagnostics.observe import labels_of, observed


def test_an_observed_network_is_frozen_and_all_is_as_before_even_after_an_error() -> None:
    network = nn.Sequential(nn.BatchNorm1d(12), nn.Dropout())
    network.train()
    state, generator = {name: value.clone() for name, value in network.state_dict().items()}, torch.get_rng_state()
    with observed(network):
        assert not any(parameter.requires_grad for parameter in network.parameters())
        network(FLAT.points)
    with pytest.raises(RuntimeError), observed(network):
        network(FLAT.points[:, :3])
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state())


def test_labels_are_those_of_all_batches() -> None:
    assert torch.equal(labels_of(FLAT, FLAT.points), FLAT.labels)
