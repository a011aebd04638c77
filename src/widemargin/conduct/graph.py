"""How does a network run that came as a list of operators?  One after the other, over torch, so that gradients flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor, nn


@dataclass(frozen=True)
class Step:
    """`run` is given the values of `inputs` in their order, None for one without a name, and returns `outputs`."""

    operator: str
    run: Callable[..., Sequence[Any]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@final
class Graph(nn.Module):
    """Weights are frozen parameters: what is audited is not trained.  A value is dropped once nothing reads it."""

    def __init__(self, stored: Mapping[str, Tensor], steps: Sequence[Step], given: str, answer: str) -> None:
        super().__init__()
        _check_order(stored, steps, given, answer)
        used = {name for step in steps for name in step.inputs}
        # torch's names cannot hold a dot; the file's can.
        self._places = {name: f"stored{number}" for number, name in enumerate(stored) if name in used}
        for name, place in self._places.items():
            if stored[name].is_floating_point():
                self.register_parameter(place, nn.Parameter(stored[name], requires_grad=False))
            else:
                self.register_buffer(place, stored[name])
        self._steps = tuple(zip(steps, _last_reads(steps, answer), strict=True))
        self._given, self._answer = given, answer

    def forward(self, inputs: Tensor) -> Tensor:
        values: dict[str, Any] = {name: getattr(self, place) for name, place in self._places.items()}
        values[self._given] = inputs
        values[""] = None
        for step, read_last in self._steps:
            outputs = step.run(*(values[name] for name in step.inputs))
            values.update(zip(step.outputs, outputs, strict=False))
            for name in read_last:
                values.pop(name, None)
        return values[self._answer]  # type: ignore[no-any-return]


def _check_order(stored: Mapping[str, Tensor], steps: Sequence[Step], given: str, answer: str) -> None:
    known = {"", given, *stored}
    for step in steps:
        for name in step.inputs:
            if name not in known:
                raise ValueError(f"its {step.operator} reads {name!r}, which nothing before it makes")
        known.update(step.outputs)
    if answer not in known:
        raise ValueError(f"its answer {answer!r} is made by nothing")


def _last_reads(steps: Sequence[Step], answer: str) -> list[tuple[str, ...]]:
    alive, found = {"", answer}, []
    for step in reversed(steps):
        last = {name for name in (*step.inputs, *step.outputs) if name not in alive}
        found.append(tuple(last))
        alive |= last
    return found[::-1]
