"""One update after another: perturb, descend, report."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from widemargin.data.batches import batches, updates_per_epoch
from widemargin.data.checks import check_known_labels, check_labels
from widemargin.data.dataset import Examples
from widemargin.method import Method
from widemargin.perturb.objectives import Pair, clean_loss
from widemargin.perturb.attack import Perturbed
from widemargin.rng import Rng
from widemargin.shapes import Labels, Points
from widemargin.training.plan import Plan, set_lr
from widemargin.training.processes import ALONE, Processes, Share, own_share
from widemargin.uncertainty.drawn import Drawn, fresh_draws
from widemargin.uncertainty.network import Network, check_is_network, check_network


@dataclass(frozen=True)
class Record:
    update: int
    loss: float


class Diverged(ValueError):
    """The loss is no longer a number; the weights are those before the update that would have spoilt them."""


class Step(nn.Module):
    """One forward of the loss, as a module: what a wrapper for several processes wraps.

    The mean over all processes is the loss of the whole batch.  Where nothing is moved it is the plain cross-entropy.
    """

    def __init__(self, network: Network, method: Method, processes: Processes) -> None:
        super().__init__()
        self.network = network
        self.method = method
        self.processes = processes

    def forward(self, inputs: Points, labels: Labels, moved: Perturbed | None, share: Share) -> Tensor:
        replicas = self.network.replicas
        if moved is None:
            logits = cache(lambda: self.network.logits(self.network.encode(inputs)))
            mean = clean_loss(Pair(labels, logits, logits)).mean()
            return mean * replicas * share.weight + self.network.penalty()
        weights = share.of(self.method.weights(self.processes.gathered(moved.distance, share), replicas))
        return self.method.loss(self.network, inputs, labels, moved, weights * share.among)


@dataclass(eq=False)
class Training:
    """A training under way: all that an interrupted one must remember.

    There is no generator among it: what an update draws follows from its number and the seeds.
    """

    network: Network
    optimizer: Optimizer
    update: int = 0
    average: AveragedModel | None = None

    @classmethod
    def begin(cls, network: Network, plan: Plan) -> Training:
        return cls(network, plan.descent.build(network.parameters()), 0, plan.average.begin(network))


def train(
    network: Network, examples: Examples, method: Method, plan: Plan, seeds: tuple[int, ...] = (0,)
) -> Iterator[Record]:
    """Train in place; a record after every update.  Nothing happens until the records are asked for.

    With networks replicas, examples hold one block for each, and there is a seed for each.
    """
    check_is_network(network)
    return continue_training(Training.begin(network, plan), examples, method, plan, seeds)


def continue_training(
    training: Training,
    examples: Examples,
    method: Method,
    plan: Plan,
    seeds: tuple[int, ...] = (0,),
    processes: Processes = ALONE,
) -> Iterator[Record]:
    """The one loop, from wherever a training stands to the end of its plan.

    Several processes that each do this with the same arguments take the same updates as one, up to rounding.
    """
    network, optimizer = training.network, training.optimizer
    if len(seeds) != network.replicas:
        raise ValueError(f"{network.replicas} networks need a seed each, got {len(seeds)}")
    if processes.count > 1 and network.replicas > 1:
        raise ValueError(f"several processes train one network, got {network.replicas} replicas: train them in one")
    probe = examples[torch.arange(min(len(examples), 64 * network.replicas))][0]
    # A mixed plan's clean updates descend the plain cross-entropy, whatever the method.
    check = check_known_labels if method.criterion.takes_unlabelled and not plan.mixed else check_labels
    check(examples.labels, len(examples), classes=check_network(network, probe))
    step = processes.wrapped(Step(network, method, processes))
    last = plan.updates(len(examples) // network.replicas)
    order = batches(len(examples), plan.batch, seeds, training.update)
    while training.update < last:
        # Whoever evaluates between records leaves the network in eval mode.
        network.train()
        done = training.update / last
        rows = next(order)
        share = own_share(len(rows), processes)
        inputs, labels = examples[share.of(rows)]
        rng = share.draws(Rng.seeded(*seeds, purpose=f"update {training.update}", device=inputs.device))
        inputs = plan.augment(inputs, rng)
        clean = plan.mixed and training.update % 2 == 1
        with _own_draws(network, seeds, training.update, processes.rank):
            moved = None if clean else method.perturb(network, inputs, labels, rng)
        set_lr(optimizer, plan.descent, done)
        optimizer.zero_grad()
        with _own_dropout(network, seeds, f"update {training.update}", processes.rank):
            loss = step(inputs, labels, moved, share)
        loss.backward()
        record = Record(training.update + 1, processes.mean(loss) / network.replicas)
        if not math.isfinite(record.loss):
            raise Diverged(_what_to_try(record, plan, done, len(examples) // network.replicas))
        optimizer.step()
        if training.average is not None and plan.average.covers(done):
            training.average.update_parameters(network)
        training.update += 1
        yield record


def _what_to_try(record: Record, plan: Plan, done: float, rows: int) -> str:
    epoch = (record.update - 1) // updates_per_epoch(rows, plan.batch) + 1
    rate = plan.descent.lr * plan.descent.schedule(done)
    return (
        f"the loss must be finite, got {record.loss} at update {record.update} (epoch {epoch}) with learning rate "
        f"{rate:g}: try a smaller rate, a smaller weight, or inputs on a smaller scale"
    )


def _own_draws(network: Network, seeds: tuple[int, ...], update: int, rank: int) -> AbstractContextManager[object]:
    """For a search: members that no other update meets, the same in every process."""
    if not _draws(network):
        return nullcontext()
    lent = ExitStack()
    lent.enter_context(fresh_draws(network, Rng.seeded(seeds[0], purpose=f"members of update {update}")))
    # A search in train mode draws like a descent.
    lent.enter_context(_own_dropout(network, seeds, f"the search of update {update}", rank))
    return lent


def _own_dropout(network: Network, seeds: tuple[int, ...], what: str, rank: int) -> AbstractContextManager[None]:
    """Dropout draws from torch's global generator: lend it one of ours, and give it back as it was."""
    if not _draws(network):
        return nullcontext()
    # A share of a batch needs masks of its own.
    share = f", share {rank}" if rank else ""
    return Rng.seeded(*seeds, purpose=f"dropout of {what}{share}").as_global()


def _draws(network: Network) -> bool:
    return any(isinstance(module, nn.modules.dropout._DropoutNd | Drawn) for module in network.modules())
