"""The training loop: perturb, step, yield a record."""

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
from widemargin.fast.training import sharing
from widemargin.method import Method
from widemargin.perturb.attack import Perturbed
from widemargin.perturb.objectives import Pair, clean_loss
from widemargin.rng import Rng
from widemargin.shapes import Labels, PerSample, Points
from widemargin.training.plan import Plan, set_lr
from widemargin.training.processes import ALONE, Processes, Shard, local_shard
from widemargin.uncertainty.drawn import Drawn, fresh_draws
from widemargin.uncertainty.network import Network, check_is_network, check_lets_gradients_through, check_network


@dataclass(frozen=True)
class Record:
    update: int
    loss: float


class Diverged(ValueError):
    """The loss is not finite; the weights are those before that update."""


class Step(nn.Module):
    """The loss of one batch as a module, for DistributedDataParallel to wrap.

    The mean over all processes is the loss of the whole batch.  Without a perturbation it is the plain cross-entropy.
    """

    def __init__(self, network: Network, method: Method, processes: Processes) -> None:
        super().__init__()
        self.network = network
        self.method = method
        self.processes = processes

    def forward(
        self,
        inputs: Points,
        labels: Labels,
        moved: Perturbed | None,
        shard: Shard,
        sample_weights: PerSample | float = 1.0,
    ) -> Tensor:
        replicas = self.network.replicas
        if moved is None:
            logits = cache(lambda: self.network.logits(self.network.encode(inputs)))
            mean = (sample_weights * clean_loss(Pair(labels, logits, logits))).mean()
            return mean * replicas * shard.weight + self.network.penalty()
        weights = shard.of(self.method.weights(self.processes.gathered(moved.distance, shard), replicas))
        return self.method.loss_at(self.network, inputs, labels, moved, sample_weights * weights * shard.among)


@dataclass(eq=False)
class Training:
    """The state of a training: all that a checkpoint must hold.

    It needs no generator: the random numbers of an update depend only on its number and the seeds.
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
    """Train in place; yields a record after every update.  Nothing happens until the records are iterated over.

    With several replicas, examples hold one block for each, and there is a seed for each.
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
    sample_weights: PerSample | None = None,
) -> Iterator[Record]:
    """The training loop, from the current update to the end of the plan.

    Several processes that each call this with the same arguments make the same updates as one, up to rounding.
    `sample_weights`, one for each example, multiply what the method counts each for; only their ratios matter.
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
    if sample_weights is not None:
        sample_weights = _with_mean_one(sample_weights, len(examples))
    # Over the same parameters, which is what is trained.
    quick = sharing(network)
    step = processes.wrapped(Step(quick, method, processes))
    last = plan.updates(len(examples) // network.replicas)
    order = batches(len(examples), plan.batch, seeds, training.update)
    while training.update < last:
        # The caller may have evaluated it between two records.
        network.train()
        quick.train()
        done = training.update / last
        rows = next(order)
        shard = local_shard(len(rows), processes)
        inputs, labels = examples[shard.of(rows)]
        rng = shard.draws(Rng.seeded(*seeds, purpose=f"update {training.update}", device=inputs.device))
        inputs = plan.augment(inputs, rng)
        clean = plan.mixed and training.update % 2 == 1
        with _seeded_draws(quick, seeds, training.update, processes.rank):
            moved = None if clean else method.perturb(quick, inputs, labels, rng)
        set_lr(optimizer, plan.descent, done)
        optimizer.zero_grad()
        with _seeded_dropout(quick, seeds, f"update {training.update}", processes.rank):
            counts = 1.0 if sample_weights is None else sample_weights[shard.of(rows)]
            loss = step(inputs, labels, moved, shard, counts)
        check_lets_gradients_through(loss, "weights")
        loss.backward()
        record = Record(training.update + 1, processes.mean(loss) / network.replicas)
        if not math.isfinite(record.loss):
            raise Diverged(_advice(record, plan, done, len(examples) // network.replicas))
        optimizer.step()
        if training.average is not None and plan.average.covers(done):
            training.average.update_parameters(network)
        training.update += 1
        yield record


def _with_mean_one(weights: PerSample, rows: int) -> PerSample:
    """A batch's loss is then that of the whole training on average, also where a batch has light examples only."""
    if weights.shape != (rows,) or not bool((weights >= 0).all() & weights.isfinite().all()) or not weights.sum() > 0:
        raise ValueError(
            f"sample weights must be {rows} numbers of at least 0, not all 0, one for each example, got "
            f"{list(weights.shape)} from {float(weights.min()):g} to {float(weights.max()):g}"
        )
    return weights / weights.mean()


def _advice(record: Record, plan: Plan, done: float, rows: int) -> str:
    epoch = (record.update - 1) // updates_per_epoch(rows, plan.batch) + 1
    lr = plan.descent.lr * plan.descent.schedule(done)
    return (
        f"the loss must be finite, got {record.loss} at update {record.update} (epoch {epoch}) with learning rate "
        f"{lr:g}: try a smaller rate, a smaller weight, or inputs on a smaller scale"
    )


def _seeded_draws(network: Network, seeds: tuple[int, ...], update: int, rank: int) -> AbstractContextManager[object]:
    """For a search: members of this update alone, the same in every process."""
    if not _draws(network):
        return nullcontext()
    contexts = ExitStack()
    contexts.enter_context(fresh_draws(network, Rng.seeded(seeds[0], purpose=f"members of update {update}")))
    # A search in train mode draws dropout masks, too.
    contexts.enter_context(_seeded_dropout(network, seeds, f"the search of update {update}", rank))
    return contexts


def _seeded_dropout(network: Network, seeds: tuple[int, ...], what: str, rank: int) -> AbstractContextManager[None]:
    """Dropout draws from torch's global generator: seed it for this update, and restore it afterwards."""
    if not _draws(network):
        return nullcontext()
    # Each shard of a batch has its own masks.
    of_rank = f", share {rank}" if rank else ""
    return Rng.seeded(*seeds, purpose=f"dropout of {what}{of_rank}").as_global()


def _draws(network: Network) -> bool:
    return any(isinstance(module, nn.modules.dropout._DropoutNd | Drawn) for module in network.modules())
