import pytest
import torch
from torch import nn

from widemargin.networks.hooks import any_hooked, hooked_as, is_hooked

KINDS = ("forward", "forward_pre", "full_backward", "full_backward_pre")


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_of_any_kind_is_seen_where_it_is(kind: str) -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    assert not any_hooked(network)
    handle = getattr(network[0], f"register_{kind}_hook")(lambda *_: None)
    assert is_hooked(network[0])
    assert not is_hooked(network)
    assert any_hooked(network)
    handle.remove()
    assert not any_hooked(network)


def test_a_module_in_anothers_place_has_its_hooks_also_those_that_come_later() -> None:
    first, second, seen = nn.Identity(), nn.ReLU(), []
    hooked_as(second, first)
    first.register_forward_pre_hook(lambda module, given: seen.append(module))
    second(torch.ones(1))
    assert seen == [second]
