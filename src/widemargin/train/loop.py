"""One update after another: perturb, descend, report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from widemargin.data.batches import batches
from widemargin.data.checks import check_labels, check_points
from widemargin.method import Method
from widemargin.plan import Plan
from widemargin.rng import Rng
from widemargin.uncertainty.network import Network, check_network


@dataclass(frozen=True)
class Record:
    update: int
    loss: float


def train(network: Network, points: Tensor, labels: Tensor, method: Method, plan: Plan, rng: Rng) -> Iterator[Record]:
    """Train in place; a record after every update.  Nothing happens until the records are asked for.

    With networks abreast, points and labels hold one block for each, and `rng` one generator for each.
    """
    check_points(points)
    check_labels(labels, len(points), classes=check_network(network, points[: 64 * network.abreast]))
    if len(rng.generators) != network.abreast:
        raise ValueError(f"{network.abreast} networks need a generator each, got {len(rng.generators)}")
    optimizer = plan.optimizer.build(network.parameters())
    network.train()
    order = batches(len(points), plan.batch, rng)
    for update in range(plan.updates):
        rows = next(order)
        inputs, targets = points[rows], labels[rows]
        moved = method.perturb(network, inputs, targets, rng)
        plan.optimizer.set_rate(optimizer, update / plan.updates)
        optimizer.zero_grad()
        loss = method.loss(network, inputs, targets, moved)
        loss.backward()
        optimizer.step()
        yield Record(update + 1, loss.item() / network.abreast)
