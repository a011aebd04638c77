from dataclasses import replace

import pytest

from widemargin import Adam, Epochs, Linf, Plan, Updates, udp
from widemargin.data.images import ImageSet
from widemargin.data.toy import LMS5
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.named import DropoutResNetSpec, LeNetSpec, ResNetSpec
from widemargin.perturb.balls import UNIT
from widemargin.recipes import standard
from widemargin.runs.keys import NUMBERS, key_of, older_keys
from widemargin.runs.run import Run, Validation
from widemargin.uncertainty.drawn import PerStep
from widemargin.uncertainty.dropout import LastDropout
from widemargin.uncertainty.estimators import BeforeHead, DeepKernelSpec, EnsembleSpec, MCDropoutSpec

RUN = Run(LMS5(), MLPSpec((2, 4, 2)), standard(), Plan(Updates(3), Adam(0.1)), 1)


TRIAL = Run(ImageSet("digits"), LeNetSpec(side=8), udp(Linf(0.1), 0.03, 4), Plan(Epochs(2), Adam(0.001), 32))


def test_keys_stay_as_they_are() -> None:
    assert RUN.key == "f609c51addb36f17"
    assert TRIAL.key == "18f367291bdf3cc4"


def test_keys_of_version_1_are_known() -> None:
    # As tests of that time say.
    assert "d0dac131d3c82ba3" in RUN.older_keys
    assert "54ca58395035736c" in TRIAL.older_keys


def test_runs_that_give_other_numbers_are_not_mistaken_for_older_ones() -> None:
    assert older_keys(RUN) == RUN.older_keys
    assert not older_keys(RUN, numbers={**NUMBERS, "": 3})


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"place": BeforeHead()},
        {"validation": Validation(2)},
        {"method": replace(TRIAL.method, class_weights=(1.0, 2.0))},
        {"method": udp(Linf(0.1, UNIT.holding((1,))), 0.03, 4)},
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


def test_a_part_that_gives_other_numbers_gets_other_keys_and_leaves_those_of_all_others() -> None:
    networks = (LeNetSpec(), DropoutResNetSpec(), MLPSpec((2, 3)), ResNetSpec(), ResNetSpec(he_normal=True))
    before, after = (
        [key_of("judged", replace(TRIAL, network=network), numbers=numbers) for network in networks]
        for numbers in (NUMBERS, {**NUMBERS, "ResNetSpec": 3})
    )
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, True, True, False, False]
