from typing import Literal

import jaxtyping
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, fx

import typechecker

Rows = Float[Tensor, "B F"]
calls = 0


def counted(function: object) -> object:
    """A checker that counts."""
    check = typechecker.checker(function)  # type: ignore[arg-type]

    def counting(*args: object, **kwargs: object) -> object:
        global calls
        calls += 1
        return check(*args, **kwargs)

    return counting


@typechecker.remembering(typechecker=counted)
def added(
    one: Float[Tensor, "B F"], other: Float[Tensor, "B F"], rows: int = 0, names: object = None
) -> Float[Tensor, "B F"]:
    return (one + other)[rows:]


def test_shapes_and_types_of_arguments_and_results_are_checked() -> None:
    zeros = torch.zeros
    added(zeros(2, 3), zeros(2, 3))
    for wrong in ((zeros(2, 3), zeros(2, 1)), (zeros(2, 3), zeros(3)), (zeros(2, 3).int(), zeros(2, 3)), (1, 2)):
        for _ in range(2):
            with pytest.raises(jaxtyping.TypeCheckError, match="parameters of"):
                added(*wrong)
    with pytest.raises(jaxtyping.TypeCheckError, match="parameters of"):
        added(zeros(2, 3), zeros(2, 3), "0")


def test_names_of_arguments_tell_calls_apart() -> None:
    one, other = torch.zeros(2, 7), 1
    added(one=one, other=one, rows=0, names=other)
    for _ in range(2):
        with pytest.raises(jaxtyping.TypeCheckError, match="parameters of"):
            added(one=one, other=one, names=0, rows=one)  # type: ignore[arg-type]
        with pytest.raises(jaxtyping.TypeCheckError, match="parameters of"):
            added(one=one, names=one, rows=0, other=other)  # type: ignore[arg-type]


def test_a_result_is_checked_also_where_its_arguments_are_known() -> None:
    zeros = torch.zeros
    added(zeros(4, 3), zeros(4, 3), 0)
    for _ in range(2):
        with pytest.raises(jaxtyping.TypeCheckError, match="return value of"):
            added(zeros(4, 3), zeros(4, 3), 1)
    assert added(zeros(4, 3), torch.ones(4, 3), 0).mean() == 1


def test_the_same_types_and_shapes_are_checked_once() -> None:
    zeros = torch.zeros
    before = calls
    for value in range(3):
        assert added(zeros(5, 2), torch.full((5, 2), float(value)), rows=0, names=[value]).mean() == value
    # The parameters, and these with the result.
    assert calls == before + 2
    for names in (["a"], [1, "a"], ["a", 1], {"a": 1}):
        added(zeros(5, 2), zeros(5, 2), rows=0, names=names)
    assert calls == before + 8
    for _ in range(3):
        added(zeros(5, 2), zeros(5, 2), rows=0, names=list(range(100)))
    assert calls == before + 14


@typechecker.remembering(typechecker=typechecker.checker)
def told(verdict: Literal["fine", "wrong"]) -> str:
    return verdict


def test_values_that_a_signature_names_are_checked_each_time() -> None:
    assert told("fine") + told("wrong") == "finewrong"
    with pytest.raises(jaxtyping.TypeCheckError, match="parameters of"):
        told("other")  # type: ignore[arg-type]


def test_what_a_tracer_hands_over_is_not_checked() -> None:
    traced = fx.symbolic_trace(lambda points: added(points, points))
    assert traced(torch.ones(2, 3)).sum() == 12


def test_checks_can_be_switched_off(untyped: None) -> None:
    assert added(torch.zeros(2, 3), torch.ones(1, 3)).shape == (2, 3)


def test_lists_that_hold_one_list_many_times_are_no_work() -> None:
    nested: list[object] = []
    for _ in range(60):
        nested = [nested, nested]
    assert len(added(torch.ones(2, 3), torch.ones(2, 3), names=nested)) == 2
