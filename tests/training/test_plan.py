import math

import pytest
import torch

import widemargin.training.plan
from widemargin import SGD, Adam, Cosine, Epochs, Plan, Updates
from widemargin.training.plan import EMA, Constant, Multistep, Schedule, Triangle, set_lr


@pytest.mark.parametrize(
    ("decay", "rates"),
    [
        (Constant(), [2.0, 2.0, 2.0]),
        (Cosine(), [2.0, 1.0, 0.0]),
        (Triangle(), [0.0, 2.0, 0.0]),
        (Triangle(0.25), [0.0, 4 / 3, 0.0]),
        (Multistep((0.5, 1.0)), [2.0, 0.2, 0.02]),
    ],
    ids=repr,
)
def test_the_rate_follows_its_decay(decay: Schedule, rates: list[float]) -> None:
    adam = Adam(2.0, decay)
    optimizer = adam.build([torch.nn.Parameter(torch.zeros(1))])
    for done, rate in zip([0.0, 0.5, 1.0], rates, strict=True):
        set_lr(optimizer, adam, done)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan])
def test_bad_rate_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=rf"^Adam.lr must be in \(0, inf\), got {rate}$"):
        Adam(rate)


@pytest.mark.parametrize("length", [Updates, Epochs])
def test_a_length_is_at_least_one(length: type) -> None:
    with pytest.raises(ValueError, match=rf"^{length.__name__}.count must be a whole number of at least 1, got 0$"):
        length(0)


def test_epochs_count_all_batches_but_none_of_a_single_row() -> None:
    assert Plan(Epochs(3), Adam(0.1), batch=10).updates(59) == 18
    assert Plan(Epochs(3), Adam(0.1), batch=10).updates(61) == 18
    assert Plan(Epochs(3), Adam(0.1)).updates(59) == 3
    assert Plan(Updates(7), Adam(0.1), batch=10).updates(59) == 7


def test_sgd_is_nesterov_with_weight_decay() -> None:
    group = SGD(0.1).build([torch.nn.Parameter(torch.zeros(1))]).param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"], group["nesterov"]) == (0.1, 0.9, 5e-4, True)


def test_the_repr_of_a_plan_is_the_code_that_makes_it() -> None:
    plan = Plan(Updates(7), Adam(0.1), average=EMA(0.9), mixed=True)
    assert eval(repr(plan), vars(widemargin.training.plan)) == plan
