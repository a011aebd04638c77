"""Training on images, shared by the studies: benches, cells, scales; trained in folders that survive, judged once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Protocol

import torch

from widemargin.conduct.carry_out import carry_out
from widemargin.conduct.folder import Line, RunFolder
from widemargin.conduct.task import laid_out, task_of
from widemargin.data.augment import CropFlip
from widemargin.data.images import ImageSet
from widemargin.data.labelled import Labelled
from widemargin.measure.accuracy import accuracy
from widemargin.measure.autoattack import autoattack
from widemargin.measure.robustness import pgd_attack, robust_accuracy
from widemargin.method import Method
from widemargin.networks.named import ImageShape, LeNetShape, ResNetShape
from widemargin.perturb.ascent import Uniform
from widemargin.perturb.balls import L2, OPEN, Ball, Linf
from widemargin.perturb.search import Search
from widemargin.plan import SGD, Adam, Epochs, Plan, Triangle
from widemargin.recipes import fgsm, pgd, r_fgsm, standard, trades_cross_entropy, udp, udp_single_step, udpr
from widemargin.report.document import Report
from widemargin.report.store import Arrays, Store, Stored
from widemargin.run import AtInput, BeforeHead, DropoutDraws, Estimator, OneNetwork, Place, Trial, Validation, key_of
from widemargin.train.loop import Record
from widemargin.uncertainty.network import Network
from widemargin.workers import Job, Tick, Workers

_AT_INPUT, _AT_THE_END, _ONE = AtInput(), Validation(every=1_000), OneNetwork()


@dataclass(frozen=True)
class Bench:
    """A data set with the network, the training and the balls that were published for it."""

    data: ImageSet
    network: ImageShape
    plan: Plan
    balls: tuple[Ball, ...]
    """Of the test."""
    place: Place = _AT_INPUT
    looks: Validation = _AT_THE_END
    """Besides the last epoch; nothing is chosen by it."""
    members: Estimator = _ONE
    split: int | None = None
    """The seed that decides which images are held out; None is that of the training, as published."""


FASHION = Bench(
    ImageSet("fashion-mnist"),
    LeNetShape(),
    Plan(Epochs(100), Adam(1e-3), batch=256),
    (Linf(0.05), Linf(0.1), Linf(0.2), L2(1.5)),
)
_SMALL_STEPS = (Linf(0.01), Linf(0.03), L2(0.5), L2(1.0))
CIFAR = Bench(ImageSet("cifar-10"), ResNetShape(), Plan(Epochs(60), SGD(0.15, Triangle()), batch=256), _SMALL_STEPS)
AUGMENTED = replace(CIFAR, network=ResNetShape(he_normal=True), plan=replace(CIFAR.plan, augment=CropFlip(4)))
SVHN = replace(CIFAR, data=ImageSet("svhn"), network=ResNetShape(he_normal=True))
LATENT = replace(CIFAR, data=ImageSet("cifar-10", fraction=0.05), place=BeforeHead(), balls=(), split=42)


@dataclass(frozen=True)
class Cell:
    """One network of a table: a bench and a method with its published numbers."""

    bench: Bench
    name: str
    eps: float = 0.0
    alpha: float = 0.0
    steps: int = 0

    @property
    def label(self) -> str:
        return f"{self.name} (eps {self.eps:g})" if self.eps else self.name

    def method(self) -> Method:
        ball = Linf(self.eps, OPEN) if isinstance(self.bench.place, BeforeHead) else Linf(self.eps)
        return _METHODS[self.name](ball, self.alpha, self.steps)


_METHODS: dict[str, Callable[[Ball, float, int], Method]] = {
    "standard": lambda ball, alpha, steps: standard(),
    "FGSM": lambda ball, alpha, steps: fgsm(ball),
    "R-FGSM": lambda ball, alpha, steps: r_fgsm(ball, alpha),
    "PGD": pgd,
    "TRADES": lambda ball, alpha, steps: trades_cross_entropy(ball, alpha, steps, weight=1.0),
    "UDP-PGD": udp,
    "UDP 1 step": lambda ball, alpha, steps: udp_single_step(ball),
    "UDPR": lambda ball, alpha, steps: udpr(ball, alpha, steps, weight=1.0),
}


@dataclass(frozen=True)
class Scale:
    """How much of the published work is done: all of it, or less of everything, so that it takes minutes."""

    name: str
    seeds: tuple[int, ...]
    fraction: float = 1.0
    """Of the training images."""
    epochs: float = 1.0
    """Of the published epochs."""
    width: float = 1.0
    """Of a ResNet's published filters, at least 8."""
    most_steps: int = 1_000
    """Longer searches take fewer, longer steps, of the same length in all."""
    batch: int = 256
    tests: int = 10_000
    standard_attack: bool = True
    """AutoAttack's standard ensemble; otherwise PGD with 20 steps, which flatters."""

    def bench(self, bench: Bench) -> Bench:
        fraction = bench.data.fraction * self.fraction
        network = bench.network
        if not isinstance(network, LeNetShape):
            network = replace(network, width=max(8, round(network.width * self.width)))
        assert isinstance(bench.plan.length, Epochs)
        length = Epochs(max(1, round(bench.plan.length.count * self.epochs)))
        data = replace(bench.data, fraction=fraction, most_tests=self.tests)
        return replace(bench, data=data, network=network, plan=replace(bench.plan, length=length, batch=self.batch))

    def cell(self, cell: Cell) -> Cell:
        steps = min(cell.steps, self.most_steps)
        alpha = cell.alpha if steps == cell.steps else cell.alpha * cell.steps / steps
        return replace(cell, bench=self.bench(cell.bench), alpha=alpha, steps=steps)

    def trials(self, cell: Cell) -> list[Trial]:
        """One for each seed.  The last weights count, as published: validation only looks."""
        scaled = self.cell(cell)
        bench, method = scaled.bench, scaled.method()
        return [
            Trial(
                replace(bench.data, seed=seed if bench.split is None else bench.split),
                bench.network,
                method,
                bench.plan,
                seed,
                bench.place,
                bench.looks,
                bench.members,
            )
            for seed in self.seeds
        ]

    def told(self, bench: Bench, attacked: bool) -> str:
        """What was done instead of what was published, for the report."""
        scaled = self.bench(bench)
        attack = "AutoAttack's standard ensemble" if self.standard_attack else "PGD with 20 steps (which flatters)"
        judged = f", robustness by {attack}" if attacked else ""
        assert isinstance(scaled.plan.length, Epochs)
        return (
            f"{scaled.data.name}: {scaled.data.published_rows:,} training images, {scaled.plan.length.count} epochs, "
            f"batches of {self.batch}, {scaled.network}, searches of at most {self.most_steps} steps, {self.tests:,} "
            f"test images{judged}; seeds {', '.join(map(str, self.seeds))}."
        )


class Numbers(NamedTuple):
    numbers: dict[str, Any]
    arrays: Arrays


class Judge(Protocol):
    """What is measured of a trained network; a frozen value whose repr says it all."""

    @property
    def passes(self) -> float:
        """Forward and backward passes it takes, for an estimate of the cost."""
        ...

    def __call__(self, network: Network, tests: Labelled) -> Numbers: ...


@dataclass(frozen=True)
class Robustness:
    """Clean accuracy, and robust accuracy in balls, on the first test images."""

    balls: tuple[Ball, ...]
    tests: int
    standard_attack: bool

    @property
    def passes(self) -> float:
        # Half of the points stand: AutoAttack takes 100 + 910 + 1,830 passes and 5,000 forward ones for each of them.
        return self.tests * (1 + len(self.balls) * (2_250 if self.standard_attack else 15))

    def __call__(self, network: Network, tests: Labelled) -> Numbers:
        tests = tests.take(torch.arange(min(self.tests, len(tests))))
        found: dict[str, Any] = {"n": len(tests), "clean": accuracy(network, tests)}
        for ball in self.balls:
            if self.standard_attack:
                found[repr(ball)] = autoattack(network, tests, ball).robust_accuracy
            else:
                found[repr(ball)] = robust_accuracy(network, tests, pgd_attack(ball, ball.radius / 8, 20))
        return Numbers(found, {})


@dataclass(frozen=True)
class ImageStudy:
    """Cells, trained at a scale and judged; a report that reads what was stored."""

    TITLE: str
    scale: Scale
    cells: tuple[Cell, ...]
    judge: Judge
    tell: Callable[[ImageStudy, Store], Report]

    @property
    def CORE_MINUTES(self) -> float:
        return sum(seconds(trial, self.judge) for trial in self._trials()) / 60

    def run(self, store: Store, workers: Workers) -> None:
        names = {trial.key: f"{cell.label}, seed {trial.seed}" for cell in self.cells for trial in self.trials(cell)}
        jobs = [
            Job(names[trial.key], updates(trial), _train_and_judge, (trial, self.judge, store))
            for trial in self._trials()
            if self._key(trial) not in store
        ]
        workers.do(jobs, self.TITLE)

    def missing(self, store: Store) -> int:
        return sum(self._key(trial) not in store for trial in self._trials())

    def report(self, store: Store) -> Report:
        return self.tell(self, store)

    def trials(self, cell: Cell) -> list[Trial]:
        return self.scale.trials(cell)

    def stored(self, cell: Cell, store: Store) -> list[Stored]:
        """What was measured, one for each seed."""
        return [store.load(self._key(trial)) for trial in self.trials(cell)]

    def numbers(self, cell: Cell, store: Store, name: str) -> list[float]:
        return [float(stored.numbers[name]) for stored in self.stored(cell, store)]

    @property
    def settings(self) -> str:
        attacked = isinstance(self.judge, Robustness) and bool(self.judge.balls)
        told = dict.fromkeys(self.scale.told(cell.bench, attacked) for cell in self.cells)
        return " ".join([f"Scale {self.scale.name}.", *told])

    def _key(self, trial: Trial) -> str:
        return key_of(self.judge, trial)

    def _trials(self) -> list[Trial]:
        """Cells may stand in several tables, and a network in several cells."""
        return list({trial.key: trial for cell in self.cells for trial in self.trials(cell)}.values())


def updates(trial: Trial) -> int:
    assert isinstance(trial.data, ImageSet)
    return trial.plan.updates(trial.data.published_rows)


def seconds(trial: Trial, judge: Judge) -> float:
    """What training and judging take on one core of this machine, from the time of one pass, measured now."""
    assert isinstance(trial.data, ImageSet)
    assert isinstance(trial.plan.length, Epochs)
    assert isinstance(trial.network, ImageShape)
    # In latent space a search passes only through the head.
    each = 2.0 if isinstance(trial.place, BeforeHead) else passes(trial.method)
    each *= trial.members.draws if isinstance(trial.members, DropoutDraws) else 1
    trained = trial.plan.length.count * trial.data.published_rows * each
    return (trained + judge.passes) * _seconds_per_pass(trial.network)


def passes(method: Method) -> float:
    """Forward and backward passes of an average sample in an update, the training's own counted as 2."""
    search = method.perturb
    if not isinstance(search, Search):
        return 2.0
    steps = search.ascent.steps
    return 2.0 + ((steps.least + steps.most) / 2 if isinstance(steps, Uniform) else steps.most)


@cache
def _seconds_per_pass(shape: ImageShape) -> float:
    network = laid_out(shape.build(torch.Generator().manual_seed(0))).eval().requires_grad_(False)
    side = shape.side if isinstance(shape, LeNetShape) else 32
    images = torch.rand(16, shape.channels, side, side).requires_grad_()

    def once() -> float:
        # Of all threads: what one core would take.
        start = time.process_time()
        torch.autograd.grad(network(images).logsumexp(-1).sum(), images)
        return time.process_time() - start

    # The first is slow, and others may be at work on this machine.
    return min(once() for _ in range(3)) / len(images)


class _Ticking:
    """A Watch that only counts."""

    def __init__(self, tick: Tick) -> None:
        self.tick = tick

    def begin(self, done: int, updates: int) -> None:
        self.tick(done)

    def updated(self, record: Record) -> None:
        if record.update % 5 == 0:
            self.tick(record.update)

    def validated(self, line: Line) -> None: ...

    def end(self) -> None: ...


def _train_and_judge(trial: Trial, judge: Judge, store: Store, tick: Tick) -> None:
    task, folder = task_of(trial), RunFolder(store.root / "trained" / trial.key)
    outcome = carry_out(task, folder, [_Ticking(tick)])
    assert isinstance(task.test, Labelled)
    numbers, arrays = judge(outcome.network, task.test)
    looks = [line for line in outcome.records if "clean" in line]
    description = {"trial": repr(trial), "judge": repr(judge), "trained": f"trained/{trial.key}"}
    store.save(key_of(judge, trial), description, {**numbers, "looks": looks}, arrays, {})
