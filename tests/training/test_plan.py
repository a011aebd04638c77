import math
from typing import Any

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


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Plan(5, 0.01, 20),
            r"^Plan.length must be epochs or updates, got 5: give wm.Epochs\(5\) or wm.Updates",
        ),
        (lambda: Plan(Epochs, Adam(0.01)), r"got the class .*Epochs: give wm.Epochs\(20\)"),
        (lambda: Plan(Epochs(5), 0.02, 20), r"^Plan.descent must be .* got 0.02: give wm.Adam\(0.02\)"),
        (lambda: Plan(Epochs(5), torch.optim.Adam, 20), r"got the class torch.optim.adam.Adam: give wm.Adam\(0.01\)"),
        (
            lambda: Plan(Epochs(5), torch.optim.SGD([torch.zeros(1)], lr=0.3)),
            r"got an optimizer, torch's SGD: give wm.Adam\(0.3\)",
        ),
        (lambda: Plan(Epochs(5), Adam, 20), r"got the class .*Adam: give wm.Adam\(0.01\)"),
        (
            lambda: Plan(Epochs(5), Adam(0.01), 0),
            "^Plan.batch must be a whole number of at least 1, or None for all, got 0",
        ),
        (lambda: Plan(Epochs(5), Adam(0.01), 2.5), "^Plan.batch must be a whole number"),
        (
            lambda: Adam(0.01, "cosine"),
            r"^Adam.schedule must be a schedule, got 'cosine': give one such as wm.Cosine\(\)$",
        ),
        (lambda: SGD(0.01, Cosine), r"^SGD.schedule must be a schedule, got the class Cosine: .* wm.Cosine\(\)$"),
        (lambda: Adam("0.01"), r"^Adam.lr must be in \(0, inf\), got 0.01"),
    ],
)
def test_wrong_guesses_get_the_right_call(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Plan(epochs=3), r"^Plan has no argument epochs: give wm.Plan\(wm.Epochs\(20\), wm.Adam"),
        (lambda: Plan(Epochs(3), lr=0.1), r"^Plan has no argument lr: give wm.Plan"),
        (lambda: Plan(3), r"^Plan: missing a required argument: 'descent': give wm.Plan"),
        (lambda: Adam(learning_rate=0.1), r"^Adam has no argument learning_rate: it is called lr$"),
        (lambda: SGD(0.1, nesterov=False), r"^SGD has no argument nesterov: give wm.SGD"),
    ],
)
def test_other_arguments_get_the_right_call(make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()
