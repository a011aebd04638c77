from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from front_door import public_names
from widemargin import Adam, Epochs, Linf, Plan, Updates, udp
from widemargin.data.images import ImageSet
from widemargin.data.toy import LMS5
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.named import DropoutResNetSpec, LeNetSpec, ResNetSpec
from widemargin.recipes import standard
from widemargin.runs.keys import NUMBERS, key_of
from widemargin.runs.run import Run, Validation
from widemargin.uncertainty.drawn import PerStep
from widemargin.uncertainty.dropout import LastDropout
from widemargin.uncertainty.estimators import (
    AtInput,
    AtModule,
    BeforeHead,
    DeepKernelSpec,
    EnsembleSpec,
    MCDropoutSpec,
    Place,
)

RUN = Run(LMS5(), MLPSpec((2, 4, 2)), standard(), Plan(Updates(3), Adam(0.1)), 1)
TRIAL = Run(ImageSet("digits"), LeNetSpec(side=8), udp(Linf(0.1), 0.03, 4), Plan(Epochs(2), Adam(0.001), 32))


def test_keys_stay_as_they_are() -> None:
    assert RUN.key == "f609c51addb36f17"
    assert TRIAL.key == "18f367291bdf3cc4"


def test_keys_of_version_1_are_known() -> None:
    # As tests of that time say.
    assert "d0dac131d3c82ba3" in RUN.older_keys
    assert "54ca58395035736c" in TRIAL.older_keys


def test_runs_that_give_other_numbers_are_not_mistaken_for_older_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NUMBERS, "", 3)
    assert not RUN.older_keys


@pytest.mark.parametrize("run", [RUN, TRIAL], ids=["run", "trial"])
def test_repr_is_the_code_that_makes_it(run: Run | Run) -> None:
    assert eval(repr(run), public_names()) == run


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"place": BeforeHead()},
        {"validation": Validation(2)},
        {"plan": replace(TRIAL.plan, mixed=True)},
        {"network": LeNetSpec(side=8, capacity=2)},
        {"network": LeNetSpec(side=8, dropout=0.1)},
        {"estimator": EnsembleSpec(2)},
        {"estimator": MCDropoutSpec(2)},
        {"estimator": MCDropoutSpec(2, PerStep())},
        {"estimator": MCDropoutSpec(2, over=LastDropout())},
        {"estimator": DeepKernelSpec()},
    ],
    ids=repr,
)
def test_whatever_decides_a_number_is_in_the_key(change: dict[str, object]) -> None:
    assert replace(TRIAL, **change).key != TRIAL.key


@pytest.mark.parametrize("place", [AtInput(), BeforeHead(), AtModule("encoder.pool1")], ids=repr)
def test_wherever_it_is_cut_the_network_is_the_same(place: Place) -> None:
    network, images = TRIAL.build().eval(), torch.rand(3, 1, 8, 8)
    encoder, head = place.cut(network)
    assert isinstance(encoder, nn.Identity) == (place == AtInput())
    assert torch.allclose(head(encoder(images)), network(images), atol=1e-6)


def test_the_seed_decides_the_first_weights() -> None:
    first, again, other = (replace(TRIAL, seed=seed).build().encoder.conv1.weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_part_that_gives_other_numbers_gets_other_keys_and_leaves_those_of_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    networks = (LeNetSpec(), DropoutResNetSpec(), MLPSpec((2, 3)), ResNetSpec(), ResNetSpec(he_normal=True))
    before = [key_of("judged", replace(TRIAL, network=network)) for network in networks]
    monkeypatch.setitem(NUMBERS, "ResNetSpec", 3)
    after = [key_of("judged", replace(TRIAL, network=network)) for network in networks]
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, True, True, False, False]


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


def test_a_validation_comes_after_whole_epochs() -> None:
    with pytest.raises(ValueError, match=r"^Validation.every must be a whole number of at least 1 epoch, got 0$"):
        Validation(0)
