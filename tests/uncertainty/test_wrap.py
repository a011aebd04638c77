import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.ensemble import Ensemble
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.single import Single
from widemargin.uncertainty.wrap import as_network, device_of, dtype_of, on_device

X = torch.rand(4, 3)


class Answering(nn.Module):
    """Logits in one of the forms in which networks return them."""

    def __init__(self, form: Any) -> None:
        super().__init__()
        self.layer, self.form = nn.Linear(3, 2), form

    def forward(self, x: Tensor) -> Any:
        return self.form(self.layer(x))


FORMS = [
    lambda logits: logits,
    lambda logits: (logits, "hidden"),
    lambda logits: {"loss": None, "logits": logits},
    lambda logits: SimpleNamespace(logits=logits),
]


@pytest.mark.parametrize("form", FORMS)
def test_logits_are_found_in_every_form(form: Any) -> None:
    module = Answering(form)
    expected = module.layer(X)[None]
    for network in (as_network(module), Single(at_input(module)), Ensemble([module])):
        torch.testing.assert_close(network.logits(network.encode(X)), expected)


def test_the_users_module_stays_as_it_is() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    module[1].eval()
    before = copy.deepcopy(module)
    network = as_network(module)
    network.logits(network.encode(X))
    assert list(module.state_dict()) == list(before.state_dict())
    assert list(module.named_modules()) == [(name, part) for name, part in module.named_modules()]
    assert [part.training for part in module.modules()] == [part.training for part in before.modules()]
    assert as_network(network) is network
    assert isinstance(network, Network)


def test_where_and_in_what_precision_a_module_computes() -> None:
    assert device_of(nn.Identity()) == torch.device("cpu")
    assert dtype_of(nn.Identity()) == torch.float32
    assert dtype_of(nn.Linear(3, 2).double()) == torch.float64
    module = nn.Linear(3, 2)
    assert on_device(module, None) is on_device(module, "cpu") is module
    with pytest.raises(ValueError, match=r"^device must be one that this computer has, got meta: take cpu$"):
        on_device(module, "meta")


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Answering, r"got the class Answering: make one first, Answering\(...\)"),
        ("runs/KEY", r"got 'runs/KEY': load it first, wm.load\('runs/KEY'\)"),
        (X, "got Tensor: the model comes first, then the data"),
        ((X, X), "got tuple: the model comes first, then the data"),
        (lambda x: x, "must be a torch.nn.Module that returns logits, got <lambda>: put it into the forward of one"),
    ],
)
def test_what_is_no_model_gets_the_right_call(model: Any, sentence: str) -> None:
    for wrap in (as_network, lambda model: Ensemble([model])):
        with pytest.raises(ValueError, match=sentence):
            wrap(model)
