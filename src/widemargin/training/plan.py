"""Training plans: length, optimiser, learning-rate schedule, batch size, augmentation, weight average."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from widemargin.arguments import called_as
from widemargin.data.batches import updates_per_epoch
from widemargin.parts import choice, choices, part
from widemargin.rng import Rng
from widemargin.uncertainty.network import Network

_EXAMPLE = "wm.Plan(wm.Epochs(20), wm.Adam(0.01), batch=100)"


class Length(Protocol):
    def updates(self, per_epoch: int) -> int: ...


@part
@dataclass(frozen=True)
class Updates:
    count: int

    def __post_init__(self) -> None:
        _check_count("Updates.count", self.count)

    def updates(self, per_epoch: int) -> int:
        return self.count


@part
@dataclass(frozen=True)
class Epochs:
    """Passes over all examples."""

    count: int

    def __post_init__(self) -> None:
        _check_count("Epochs.count", self.count)

    def updates(self, per_epoch: int) -> int:
        return self.count * per_epoch


class Schedule(Protocol):
    def __call__(self, done: float) -> float:
        """The factor of the peak learning rate after a fraction `done` of all updates."""
        ...


@choice("schedule")
@dataclass(frozen=True)
class Constant:
    def __call__(self, done: float) -> float:
        return 1.0


@choice("schedule")
@dataclass(frozen=True)
class Cosine:
    """From 1 to 0 along half a cosine."""

    def __call__(self, done: float) -> float:
        return (1 + math.cos(math.pi * done)) / 2


@choice("schedule")
@dataclass(frozen=True)
class Triangle:
    """Linearly from 0 to 1 at the fraction `peak` of all updates, and back to 0."""

    peak: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.peak < 1:
            raise ValueError(f"Triangle.peak must be in (0, 1), got {self.peak}")

    def __call__(self, done: float) -> float:
        return done / self.peak if done < self.peak else (1 - done) / (1 - self.peak)


@choice("schedule")
@dataclass(frozen=True)
class Multistep:
    """Times `factor` at each of these fractions of all updates."""

    at: tuple[float, ...] = (0.5, 0.75)
    factor: float = 0.1

    def __call__(self, done: float) -> float:
        return self.factor ** sum(done >= at for at in self.at)


class Descent(Protocol):
    """An optimiser and its learning-rate schedule."""

    @property
    def lr(self) -> float: ...
    @property
    def schedule(self) -> Schedule: ...
    def build(self, parameters: Iterable[torch.nn.Parameter]) -> Optimizer: ...


@part
@called_as("wm.Adam(0.01)")
@dataclass(frozen=True)
class Adam:
    lr: float
    schedule: Schedule = Constant()

    def __post_init__(self) -> None:
        _check_rate("Adam.lr", self.lr)
        _check_schedule("Adam.schedule", self.schedule)

    def build(self, parameters: Iterable[torch.nn.Parameter]) -> Optimizer:
        return torch.optim.Adam(parameters, lr=self.lr, fused=True)


@part
@called_as("wm.SGD(0.1, momentum=0.9, weight_decay=5e-4)")
@dataclass(frozen=True)
class SGD:
    """With Nesterov momentum and weight decay, as published; plain with momentum=0, weight_decay=0."""

    lr: float
    schedule: Schedule = Constant()
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        _check_rate("SGD.lr", self.lr)
        _check_schedule("SGD.schedule", self.schedule)

    def build(self, parameters: Iterable[torch.nn.Parameter]) -> Optimizer:
        nesterov = self.momentum > 0
        return torch.optim.SGD(parameters, self.lr, self.momentum, 0.0, self.weight_decay, nesterov)


def set_lr(optimizer: Optimizer, descent: Descent, done: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = descent.lr * descent.schedule(done)


def jointly(descent: Descent, members: int) -> Descent:
    """The descent under which members that are trained jointly move as each would alone.

    Their loss is a mean, so each has 1 / M of its gradient.  Adam's step does not depend on that; SGD needs M times the
    rate, and 1 / M of the weight decay that the rate multiplies.
    """
    if not isinstance(descent, SGD):
        return descent
    return replace(descent, lr=descent.lr * members, weight_decay=descent.weight_decay / members)


class Augment(Protocol):
    def __call__(self, inputs: Tensor, rng: Rng, /) -> Tensor: ...


@part
@dataclass(frozen=True)
class NoAugment:
    def __call__(self, inputs: Tensor, rng: Rng) -> Tensor:
        return inputs


class Average(Protocol):
    """An average of the weights over training, which is often in a flatter minimum than the last ones."""

    @property
    def recounts(self) -> bool:
        """Whether batch-norm statistics must be recomputed for the averaged weights."""
        ...

    def begin(self, network: Network) -> AveragedModel | None: ...
    def covers(self, done: float) -> bool:
        """Whether the weights after a fraction `done` of all updates are averaged."""
        ...


@part
@dataclass(frozen=True)
class NoAverage:
    """No average."""

    recounts = False

    def begin(self, network: Network) -> AveragedModel | None:
        return None

    def covers(self, done: float) -> bool:
        return False


@choice("average")
@dataclass(frozen=True)
class EMA:
    """Exponential: after every update, `decay` of the old average and the rest of the new weights.

    Batch-norm statistics are averaged, too: they are exponential averages themselves.
    """

    decay: float = 0.999
    recounts = False

    def __post_init__(self) -> None:
        if not 0 < self.decay < 1:
            raise ValueError(f"EMA.decay must be in (0, 1), got {self.decay}")

    def begin(self, network: Network) -> AveragedModel | None:
        return AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(self.decay), use_buffers=True)

    def covers(self, done: float) -> bool:
        return True


@choice("average")
@dataclass(frozen=True)
class SWA:
    """Stochastic weight averaging: the mean of the weights after every update from the fraction `start` on.

    Batch-norm statistics of the mean weights are recomputed on the training points.
    """

    start: float = 0.75
    recounts = True

    def __post_init__(self) -> None:
        if not 0 <= self.start < 1:
            raise ValueError(f"SWA.start must be in [0, 1), got {self.start}")

    def begin(self, network: Network) -> AveragedModel | None:
        return AveragedModel(network)

    def covers(self, done: float) -> bool:
        return done >= self.start


@part
@called_as(_EXAMPLE)
@dataclass(frozen=True)
class Plan:
    length: Length
    descent: Descent
    batch: int | None = None
    """Examples in an update; None for all of them."""
    augment: Augment = NoAugment()
    """Applied to every batch before the perturbation."""
    average: Average = NoAverage()
    mixed: bool = False
    """Every other update is on clean points and their plain cross-entropy."""

    def __post_init__(self) -> None:
        if not hasattr(self.length, "updates") or isinstance(self.length, type):
            count = self.length if isinstance(self.length, int) else 20
            raise ValueError(
                f"Plan.length must be epochs or updates, got {_called(self.length)}: give wm.Epochs({count}) or "
                f"wm.Updates({count})"
            )
        if not hasattr(self.descent, "build") or isinstance(self.descent, type):
            raise ValueError(
                f"Plan.descent must be wm.Adam or wm.SGD with its learning rate, got {_called(self.descent)}: give "
                f"wm.Adam({_rate_of(self.descent):g})"
            )
        if self.batch is not None and (not isinstance(self.batch, Integral) or self.batch < 1):
            raise ValueError(f"Plan.batch must be a whole number of at least 1, or None for all, got {self.batch!r}")

    def updates(self, rows: int) -> int:
        return self.length.updates(updates_per_epoch(rows, self.batch))


def check_is_plan(plan: object) -> None:
    if not isinstance(plan, Plan):
        raise ValueError(f"the plan must be a Plan, got {_called(plan)}: give {_EXAMPLE}")


def _called(given: object) -> str:
    if isinstance(given, Optimizer):
        return f"an optimizer, torch's {type(given).__name__}"
    return f"the class {given.__module__}.{given.__name__}" if isinstance(given, type) else repr(given)


def _rate_of(descent: object) -> float:
    """What was meant, or a usual one."""
    given = descent.defaults.get("lr") if isinstance(descent, Optimizer) else descent
    return float(given) if isinstance(given, int | float) and 0 < given < math.inf else 0.01


def _check_schedule(name: str, schedule: object) -> None:
    if not callable(schedule) or isinstance(schedule, type):
        word = schedule.__name__ if isinstance(schedule, type) else str(schedule).capitalize()
        right = word if isinstance(schedule, type) or word.lower() in choices("schedule") else "Cosine"
        got = f"the class {word}" if isinstance(schedule, type) else repr(schedule)
        raise ValueError(f"{name} must be a schedule, got {got}: give one such as wm.{right}()")


def _check_count(name: str, count: int) -> None:
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {count}")


def _check_rate(name: str, rate: float) -> None:
    if not isinstance(rate, Real) or not 0 < rate < math.inf:
        raise ValueError(f"{name} must be in (0, inf), got {rate}")
