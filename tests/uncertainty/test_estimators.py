from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from widemargin import Adam, Epochs, Linf, Plan, udp
from widemargin.data.images import ImageSet
from widemargin.networks.named import LeNetSpec
from widemargin.runs.run import Run
from widemargin.uncertainty.estimators import (
    AtInput,
    AtModule,
    BeforeHead,
    DeepKernelSpec,
    EnsembleSpec,
    MCDropoutSpec,
    Place,
)


@pytest.mark.parametrize("change", [{"inducing": 0}, {"draws": 0}, {"coefficient": 0.0}])
def test_impossible_kernels_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^inducing and draws must be at least 1 and coefficient > 0, got DeepKernel"):
        DeepKernelSpec(**change)


TRIAL = Run(ImageSet("digits"), LeNetSpec(side=8), udp(Linf(0.1), 0.03, 4), Plan(Epochs(2), Adam(0.001), 32))


@pytest.mark.parametrize("place", [AtInput(), BeforeHead(), AtModule("encoder.pool1")], ids=repr)
def test_wherever_it_is_cut_the_network_is_the_same(place: Place) -> None:
    network, images = TRIAL.build().eval(), torch.rand(3, 1, 8, 8)
    encoder, head = place.cut(network)
    assert isinstance(encoder, nn.Identity) == (place == AtInput())
    assert torch.allclose(head(encoder(images)), network(images), atol=1e-6)


def test_members_begin_with_weights_of_their_own_and_the_first_with_those_of_one_network() -> None:
    network = EnsembleSpec(3).network(TRIAL.build, AtInput(), None)
    first, *others = (member.encoder.conv1.weight for member in network.members)
    assert torch.equal(first, TRIAL.build().encoder.conv1.weight)
    assert not any(torch.equal(first, other) for other in others)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: EnsembleSpec(1), "EnsembleSpec.count must be a whole number of at least 2, got 1"),
        (lambda: MCDropoutSpec(0), "MCDropoutSpec.draws must be a whole number of at least 1, got 0"),
        (
            lambda: EnsembleSpec(2).network(TRIAL.build, BeforeHead(), None),
            r"members have latent spaces of their own, so inputs must be perturbed, got BeforeHead\(\)",
        ),
        (lambda: MCDropoutSpec(2).network(TRIAL.build, AtInput(), None), "MCDropout needs nn.Dropout layers"),
    ],
)
def test_impossible_members_are_one_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        make()
