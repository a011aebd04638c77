"""One update after another: perturb, descend, report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from widemargin.data.batches import batches
from widemargin.data.checks import check_labels
from widemargin.method import Method
from widemargin.perturb.search import Moved
from widemargin.plan import Plan, set_rate
from widemargin.rng import Rng
from widemargin.shapes import Encoded, Labels, PerSample, Points
from widemargin.uncertainty.network import Network, check_network


class Examples(Protocol):
    """What can be trained on: a Cloud, or images and tables."""

    @property
    def labels(self) -> Labels: ...
    def __len__(self) -> int: ...
    def batch(self, rows: Tensor) -> tuple[Points, Labels]: ...


@dataclass(frozen=True)
class Record:
    update: int
    loss: float


class Step(nn.Module):
    """One forward of the loss, as a module: what a wrapper for several processes wraps."""

    def __init__(self, network: Network, method: Method) -> None:
        super().__init__()
        self.network = network
        self.method = method

    def forward(self, inputs: Points, labels: Labels, delta: Encoded, way: PerSample) -> Tensor:
        return self.method.loss(self.network, inputs, labels, Moved(delta, way))


@dataclass(eq=False)
class Training:
    """A training under way: all that an interrupted one must remember.

    There is no generator among it: what an update draws follows from its number and the seeds.
    """

    network: Network
    optimizer: Optimizer
    update: int = 0

    @classmethod
    def begin(cls, network: Network, plan: Plan) -> Training:
        return cls(network, plan.descent.build(network.parameters()))


def train(
    network: Network, examples: Examples, method: Method, plan: Plan, seeds: tuple[int, ...] = (0,)
) -> Iterator[Record]:
    """Train in place; a record after every update.  Nothing happens until the records are asked for.

    With networks abreast, examples hold one block for each, and there is a seed for each.
    """
    return carry_on(Training.begin(network, plan), examples, method, plan, seeds)


def carry_on(
    training: Training, examples: Examples, method: Method, plan: Plan, seeds: tuple[int, ...] = (0,)
) -> Iterator[Record]:
    """The one loop, from wherever a training stands to the end of its plan."""
    network, optimizer = training.network, training.optimizer
    if len(seeds) != network.abreast:
        raise ValueError(f"{network.abreast} networks need a seed each, got {len(seeds)}")
    probe = examples.batch(torch.arange(min(len(examples), 64 * network.abreast)))[0]
    check_labels(examples.labels, len(examples), classes=check_network(network, probe))
    step = Step(network, method)
    last = plan.updates(len(examples) // network.abreast)
    order = batches(len(examples), plan.batch, seeds, training.update)
    network.train()
    while training.update < last:
        rng = Rng.seeded(*seeds, purpose=f"update {training.update}")
        inputs, labels = examples.batch(next(order))
        inputs = plan.augment(inputs, rng)
        moved = method.perturb(network, inputs, labels, rng)
        set_rate(optimizer, plan.descent, training.update / last)
        optimizer.zero_grad()
        with _own_dropout(network, seeds, training.update):
            loss = step(inputs, labels, moved.delta, moved.way)
        loss.backward()
        optimizer.step()
        training.update += 1
        yield Record(training.update, loss.item() / network.abreast)


def _own_dropout(network: Network, seeds: tuple[int, ...], update: int) -> AbstractContextManager[None]:
    """Dropout draws from torch's global generator: lend it one of ours, and give it back as it was."""
    if not any(isinstance(module, nn.modules.dropout._DropoutNd) for module in network.modules()):
        return nullcontext()
    return Rng.seeded(*seeds, purpose=f"dropout of update {update}").as_global()
