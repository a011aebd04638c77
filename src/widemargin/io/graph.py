"""A network read from a file: a list of operators, run by torch one after the other, so that gradients flow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

MOST_STEPS = 100_000
"""Operators in one file; a ResNet-152 has about 500."""
MOST_STORED = 2**34
"""Bytes of all tensors in one file, and of what one archive unpacks to."""
LARGEST_VALUE = 2**28
"""Numbers in the result of one operator, for two points or for the batch that a file was exported for."""
MOST_ALIVE = 2**30
"""Numbers in all values alive between two operators, for as many points."""
_READ_VALUES = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default}


def sentence(problem: object) -> str:
    """The first line of an error, printable and of bounded length."""
    lines = str(problem).splitlines() or [type(problem).__name__]
    line = "".join(letter if letter.isprintable() else "?" for letter in lines[0])
    return line if len(line) <= 300 else f"{line[:300]} ..."


@dataclass(frozen=True)
class Step:
    """`run` is given the values of `inputs` in their order, None for one without a name, and returns `outputs`."""

    operator: str
    run: Callable[..., Sequence[Any]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@final
class Graph(nn.Module):
    """Weights are frozen parameters.  A value is dropped after its last use.

    `sizes` is the declared shape of the inputs, batch first, None for any size: other points are refused, and batches
    are padded or split to a fixed batch size.  Before the first points of a shape, a dry run computes the size of every
    result before its operator runs.
    """

    def __init__(
        self,
        stored: Mapping[str, Tensor],
        steps: Sequence[Step],
        given: str,
        answer: str,
        sizes: Sequence[int | None] | None = None,
    ) -> None:
        super().__init__()
        if sizes is not None and (not sizes or sizes[0] == 0):
            raise ValueError(f"it must take batches of points, got inputs of sizes {list(sizes)}")
        _check_order(stored, steps, given, answer)
        used = {answer, *(name for step in steps for name in step.inputs)}
        # torch's names cannot hold a dot; the file's can.
        self._places = {name: f"stored{number}" for number, name in enumerate(stored) if name in used}
        for name, place in self._places.items():
            if stored[name].is_floating_point():
                self.register_parameter(place, nn.Parameter(stored[name], requires_grad=False))
            else:
                self.register_buffer(place, stored[name])
        self._steps = tuple(zip(steps, _last_reads(steps, answer), strict=True))
        self._given, self._answer = given, answer
        self._sizes = None if sizes is None else tuple(sizes)
        self._tried = set[tuple[int, ...]]()
        self.largest_value = LARGEST_VALUE

    @property
    def fixed_batch_size(self) -> int | None:
        """The only batch size it takes; None for any."""
        return self._sizes[0] if self._sizes else None

    def forward(self, inputs: Tensor) -> Tensor:
        # While torch.fx traces, it is not a tensor, and was tried before.
        if isinstance(inputs, Tensor) and tuple(inputs.shape[1:]) not in self._tried:
            self._try(inputs)
        # An empty batch is padded to one point: `view(rows, -1)` fails for it.
        rows = self.fixed_batch_size or max(inputs.shape[0], 1)
        if inputs.shape[0] == rows:
            return self._run(inputs)
        return torch.cat([self._run(padded(part, rows))[: len(part)] for part in inputs.split(rows)])

    def _run(self, inputs: Tensor) -> Tensor:
        values = self._begun(inputs)
        for step, read_last in self._steps:
            _take(values, step, read_last)
        return values[self._answer]  # type: ignore[no-any-return]

    def values(self, inputs: Tensor) -> Iterator[tuple[str, Any]]:
        """The inputs and what each operator makes of them, by their names in the file."""
        self._try(inputs)
        values = self._begun(inputs)
        yield self._given, inputs
        for step, read_last in self._steps:
            # Kept until it was seen, though nothing may read it.
            _take_checked(values, step, [name for name in read_last if name not in step.outputs])
            yield from ((name, values[name]) for name in step.outputs if name)
            for name in read_last:
                values.pop(name, None)

    def behind(self, name: str, sizes: Sequence[int | None]) -> Graph:
        """The part that takes the value of this name, of which all that depends on the inputs must be made."""
        needed, steps = {self._answer}, list[Step]()
        for step, _ in reversed(self._steps):
            if name not in step.outputs and not needed.isdisjoint(step.outputs):
                needed.update(step.inputs)
                steps.append(step)
        stored = {stored: getattr(self, place) for stored, place in self._places.items()}
        return Graph(stored, steps[::-1], name, self._answer, sizes)

    def _begun(self, inputs: Tensor) -> dict[str, Any]:
        values: dict[str, Any] = {name: getattr(self, place) for name, place in self._places.items()}
        return {**values, self._given: inputs, "": None}

    def _try(self, inputs: Tensor) -> None:
        """A dry run on zeros."""
        self._check_sizes(inputs)
        rows = self.fixed_batch_size or max(1, min(len(inputs), 2))
        if rows * math.prod(inputs.shape[1:]) > self.largest_value:
            raise ValueError(f"its batches of {rows:,} points are too large, more than {self.largest_value:,} numbers")
        values = self._begun(inputs.new_zeros((rows, *inputs.shape[1:])))
        alive = 0
        with torch.no_grad(), _Sized(self.largest_value):
            for step, read_last in self._steps:
                dropped = self._numbers(values, read_last)
                _take_checked(values, step, read_last)
                alive += self._numbers(values, step.outputs) - dropped
                if alive > MOST_ALIVE:
                    raise ValueError(f"it keeps {alive:,} numbers at once for a few points, more than {MOST_ALIVE:,}")
        if not isinstance(values.get(self._answer), Tensor):
            raise ValueError("it must return logits as one tensor, got something else")
        self._tried.add(tuple(inputs.shape[1:]))

    def _numbers(self, values: Mapping[str, Any], names: Sequence[str]) -> int:
        made = (values.get(name) for name in set(names) - self._places.keys())
        return sum(value.numel() for value in made if isinstance(value, Tensor))

    def _check_sizes(self, inputs: Tensor) -> None:
        if self._sizes is None:
            return
        wanted, got = self._sizes[1:], tuple(inputs.shape[1:])
        if len(wanted) != len(got) or any(a not in (None, b) for a, b in zip(wanted, got, strict=True)):
            shape = ", ".join("any" if size is None else str(size) for size in wanted)
            raise ValueError(f"the file takes points of shape [{shape}], got {list(got)}")


def _take(values: dict[str, Any], step: Step, read_last: Sequence[str]) -> None:
    outputs = step.run(*(values[name] for name in step.inputs))
    values.update((name, value) for name, value in zip(step.outputs, outputs, strict=False) if name)
    for name in read_last:
        values.pop(name, None)


def _take_checked(values: dict[str, Any], step: Step, read_last: Sequence[str]) -> None:
    try:
        _take(values, step, read_last)
    except Exception as problem:
        # torch may raise anything on the operators of a file.
        raise ValueError(f"its {sentence(step.operator)} cannot be computed: {sentence(problem)}") from None


def padded(points: Tensor, batch: int) -> Tensor:
    """With zeros, whose logits are discarded."""
    missing = batch - len(points)
    return torch.cat([points, points.new_zeros((missing, *points.shape[1:]))]) if missing else points


@final
class _Sized(TorchDispatchMode):
    """Every operator first runs on the meta device, for the size of its result, which needs no memory."""

    def __init__(self, most: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = most

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in _READ_VALUES:
            nowhere = {"device": "meta"} if any(entry.name == "device" for entry in func._schema.arguments) else {}
            without = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), (args, kwargs))
            made = func(*without[0], **(without[1] | nowhere))
            numbers = sum(value.numel() for value in tree_leaves(made) if isinstance(value, Tensor))
            if numbers > self.most:
                raise ValueError(f"it would make {numbers:,} numbers, more than {self.most:,}")
        return func(*args, **kwargs)


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
    alive, last_reads = {"", answer}, list[tuple[str, ...]]()
    for step in reversed(steps):
        last = {name for name in (*step.inputs, *step.outputs) if name not in alive}
        last_reads.append(tuple(last))
        alive |= last
    return last_reads[::-1]


def check_count(steps: int) -> None:
    if steps > MOST_STEPS:
        raise ValueError(f"it must have at most {MOST_STEPS:,} operators, got {steps:,}")


@dataclass(frozen=True, eq=False)
class GraphFile:
    """What a file holds: its network, what is worth a note, and texts that describe it, which are not checked yet."""

    graph: Graph
    notes: tuple[str, ...]
    metadata: Mapping[str, str]


def batch_note(sizes: Sequence[int | None] | None) -> tuple[str, ...]:
    if not sizes or sizes[0] is None:
        return ()
    return (f"it was exported for batches of exactly {sizes[0]} points, so points are evaluated in such batches",)
