import pytest
import torch
from torch import nn

from widemargin.perturb.frozen import frozen, without_parameter_gradients


def layers() -> nn.Sequential:
    """Partly trained, partly in eval mode."""
    network = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.BatchNorm1d(2))
    network[0].bias.requires_grad_(False)
    network[2].eval()
    return network


def state(network: nn.Module) -> tuple[list[bool], list[bool]]:
    return [m.training for m in network.modules()], [p.requires_grad for p in network.parameters()]


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_as_before_afterwards(fails: bool) -> None:
    network = layers()
    before = state(network)
    with pytest.raises(KeyError) if fails else torch.no_grad(), frozen(network):
        assert not any(state(network)[0])
        assert not any(state(network)[1])
        if fails:
            raise KeyError
    assert state(network) == before == ([True, True, True, False], [True, False, True, True])


def test_modes_may_stay() -> None:
    network = layers()
    modes, _ = before = state(network)
    with without_parameter_gradients(network):
        assert state(network) == (modes, [False] * 4)
    assert state(network) == before
