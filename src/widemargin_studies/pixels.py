"""Training on images, shared by the studies: benches, cells, scales; trained in folders that survive, judged once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from widemargin.data.augment import CropFlip
from widemargin.data.dataset import Dataset, Splits
from widemargin.data.images import ImageSet
from widemargin.data.splits import at_most
from widemargin.measure.accuracy import Mask, accuracy, fraction
from widemargin.measure.autoattack import autoattack
from widemargin.measure.robustness import robust
from widemargin.method import Method
from widemargin.networks.named import ImageShape, LeNetSpec, ResNetSpec
from widemargin.perturb.balls import L2, OPEN, Ball, Linf
from widemargin.perturb.pgd import pgd_search
from widemargin.recipes import fgsm, pgd, r_fgsm, standard, trades_cross_entropy, udp, udp_single_step, udpr
from widemargin.report.document import Report
from widemargin.report.results import hardware
from widemargin.report.store import Arrays, Parts, Store, Stored
from widemargin.report.study import Left
from widemargin.report.verdicts import Estimate, accuracy_of
from widemargin.runs.folder import Line, RunFolder
from widemargin.runs.prepare import PreparedRun, prepare
from widemargin.runs.run import Run, Validation
from widemargin.runs.run_yaml import read_description
from widemargin.runs.runner import run_training
from widemargin.runs.stop import AtEpoch
from widemargin.training.checkpoint import load_weights, save_weights
from widemargin.training.loop import Record
from widemargin.training.plan import SGD, Adam, Epochs, NoAugment, Plan, Triangle
from widemargin.uncertainty.estimators import AtInput, BeforeHead, Estimator, Place, SingleSpec
from widemargin.uncertainty.network import Network
from widemargin.workers import Job, OnProgress, Workers
from widemargin_studies.costs import Pace, judging, seconds_per_pass, training, updates

_AT_INPUT, _AT_THE_END, _ONE = AtInput(), Validation(every=1_000), SingleSpec()


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
    estimator: Estimator = _ONE
    split: int | None = None
    """The seed that decides which images are held out; None is that of the training, as published."""


FASHION = Bench(
    ImageSet("fashion-mnist"),
    LeNetSpec(),
    Plan(Epochs(100), Adam(1e-3), batch=256),
    (Linf(0.05), Linf(0.1), Linf(0.2), L2(1.5)),
)
_SMALL_STEPS = (Linf(0.01), Linf(0.03), L2(0.5), L2(1.0))
CIFAR = Bench(ImageSet("cifar-10"), ResNetSpec(), Plan(Epochs(60), SGD(0.15, Triangle()), batch=256), _SMALL_STEPS)
AUGMENTED = replace(CIFAR, network=ResNetSpec(he_normal=True), plan=replace(CIFAR.plan, augment=CropFlip(4)))
_ALL_OF_SVHN = 26_032
SVHN = replace(CIFAR, data=ImageSet("svhn", most_tests=_ALL_OF_SVHN), network=ResNetSpec(he_normal=True))
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


# TRADES of the tables in its published form is named here and nowhere else.
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
    tests: int | None = None
    """Test images at most; None for all."""
    attacked: int = 10_000
    """Of the test images, at most so many are attacked."""
    standard_attack: bool = True
    """AutoAttack's standard ensemble; otherwise PGD with 20 steps, an optimistic estimate."""
    stages: tuple[int, ...] = ()
    """Epochs to which all networks are brought, one after the other, and at which they are judged; none: the last."""

    def bench(self, bench: Bench) -> Bench:
        data = replace(bench.data, fraction=bench.data.fraction * self.fraction)
        if self.tests is not None:
            data = replace(data, most_tests=self.tests)
        network = bench.network
        if not isinstance(network, LeNetSpec):
            network = replace(network, width=max(8, round(network.width * self.width)))
        assert isinstance(bench.plan.length, Epochs)
        length = Epochs(max(1, round(bench.plan.length.count * self.epochs)))
        return replace(bench, data=data, network=network, plan=replace(bench.plan, length=length, batch=self.batch))

    def cell(self, cell: Cell) -> Cell:
        steps = min(cell.steps, self.most_steps)
        alpha = cell.alpha if steps == cell.steps else cell.alpha * cell.steps / steps
        return replace(cell, bench=self.bench(cell.bench), alpha=alpha, steps=steps)

    def runs(self, cell: Cell) -> list[Run]:
        """One for each seed.  The last weights count, as published: validation only looks."""
        scaled = self.cell(cell)
        bench, method = scaled.bench, scaled.method()
        return [
            Run(
                replace(bench.data, seed=seed if bench.split is None else bench.split),
                bench.network,
                method,
                bench.plan,
                seed,
                bench.place,
                bench.looks,
                bench.estimator,
            )
            for seed in self.seeds
        ]

    def robustness(self, balls: tuple[Ball, ...]) -> Robustness:
        return Robustness(balls, self.attacked, self.standard_attack)


class Numbers(NamedTuple):
    numbers: dict[str, Any]
    """With n, on how many images; `attacked`, on how many an attack was made, if that is another number."""
    arrays: Arrays


class Judge(Protocol):
    """What is measured of a trained network; a frozen value whose repr says it all."""

    @property
    def passes(self) -> float:
        """Forward and backward passes it takes, for an estimate of the cost."""
        ...

    def __call__(self, network: Network, parts: Splits) -> Numbers: ...


_ATTACKED_SEED = 42


@dataclass(frozen=True)
class Robustness:
    """Clean accuracy on all test images, and robust accuracy in balls on so many of them, drawn class by class."""

    balls: tuple[Ball, ...]
    attacked: int
    standard_attack: bool

    @property
    def passes(self) -> float:
        # Half of the points stand: AutoAttack takes 100 + 910 + 1,830 passes and 5,000 forward ones for each of them.
        return self.attacked * len(self.balls) * (2_250 if self.standard_attack else 15)

    def __str__(self) -> str:
        if not self.balls:
            return "Nothing was attacked."
        attack = (
            "AutoAttack's standard ensemble" if self.standard_attack else "PGD with 20 steps, an optimistic estimate"
        )
        return f"Robustness by {attack}, on {self.attacked:,} test images at most."

    def __call__(self, network: Network, parts: Splits) -> Numbers:
        some = at_most(parts.test, self.attacked, _ATTACKED_SEED)
        results: dict[str, Any] = {"n": len(parts.test), "attacked": len(some), "clean": accuracy(network, parts.test)}
        standing = {repr(ball): self._standing(network, some, ball) for ball in self.balls}
        results |= {ball: fraction(flags) for ball, flags in standing.items()}
        return Numbers(results, {ball: flags.numpy() for ball, flags in standing.items()})

    def _standing(self, network: Network, some: Dataset, ball: Ball) -> Mask:
        if self.standard_attack:
            return autoattack(network, some, ball).standing
        return robust(network, some, pgd_search(ball, ball.radius / 8, 20))


@dataclass(frozen=True)
class ImageStudy:
    """Cells, trained at a scale and judged, stage by stage; a report that reads what was stored."""

    TITLE: str
    scale: Scale
    cells: tuple[Cell, ...]
    judge: Judge
    tell: Callable[[ImageStudy, Store], Report]
    pace: Pace = seconds_per_pass
    """By which it is reckoned how long it takes."""

    @property
    def CORE_MINUTES(self) -> float:
        return self.left(Store(Path("nowhere"))).core_minutes

    def run(self, store: Store, workers: Workers) -> None:
        names = {run.key: f"{cell.label}, seed {run.seed}" for cell in self.cells for run in self.runs(cell)}
        for stage in range(len(self.scale.stages) or 1):
            jobs = []
            for run in self._runs():
                epoch = self._epochs(run)[stage]
                if not self._done(run, epoch, store):
                    name = f"{names[run.key]}, epoch {epoch}" if self.scale.stages else names[run.key]
                    jobs.append(
                        Job(
                            name,
                            updates(run, epoch),
                            _train_and_judge,
                            (run, self._stops(epoch), self.judge, store),
                        )
                    )
            workers.do(jobs, self.TITLE)

    def missing(self, store: Store) -> int:
        return len(self._missing(store))

    def left(self, store: Store) -> Left:
        """Networks that were trained already, by whatever study, only have to be judged."""
        of = sum(len(self._epochs(run)) for run in self._runs())
        stand: dict[str, float] = {}
        total = 0.0
        for run, epoch in self._missing(store):
            begun = stand.get(run.key, _epochs_trained(run, store))
            total += self._seconds(run, epoch, begun)
            stand[run.key] = max(begun, epoch)
        return Left(self.missing(store), of, total / 60)

    def report(self, store: Store) -> Report:
        return replace(self.tell(self, store), facts=self.facts(store))

    def runs(self, cell: Cell) -> list[Run]:
        return self.scale.runs(cell)

    def stored(self, cell: Cell, store: Store) -> list[Stored]:
        """What was measured, one for each seed, at the furthest stage that all networks have reached."""
        stage = self._stage(store)
        return [store.load(self._parts(run, self._epochs(run)[stage])) for run in self.runs(cell)]

    def judged_at(self, run: Run, store: Store) -> int | None:
        """The epoch of the furthest stage that all networks have reached; None if this one was not judged there."""
        epoch = self._epochs(run)[self._stage(store)]
        return epoch if self._parts(run, epoch) in store else None

    def stored_at(self, run: Run, epoch: int, store: Store) -> Stored:
        return store.load(self._parts(run, epoch))

    def numbers(self, cell: Cell, store: Store, name: str) -> list[float]:
        return [float(stored.numbers[name]) for stored in self.stored(cell, store)]

    def accuracy(self, cell: Cell, store: Store, name: str) -> Estimate:
        """With the bounds of its seeds and its test images."""
        return accuracy_of(self.numbers(cell, store, name), self.tested(cell, store, name))

    def tested(self, cell: Cell, store: Store, name: str) -> int:
        """On how many images."""
        numbers = self.stored(cell, store)[0].numbers
        return int(numbers["n"] if name == "clean" else numbers.get("attacked", numbers["n"]))

    def images(self, cell: Cell, store: Store) -> tuple[int, int, int]:
        """How many were there to train on, to validate on and to test on, by the folder of what ran."""
        train, validation, test = _description(self.runs(cell)[0], store)["data"]["rows"]
        return int(train), int(validation), int(test)

    def settings(self, store: Store) -> str:
        """What ran, from the folders in which it ran."""
        told = dict.fromkeys(self._told(cell, store) for cell in self.cells)
        return " ".join([f"Scale {self.scale.name}.", *told, *self._stand(store), f"{str(self.judge).rstrip('.')}."])

    def facts(self, store: Store) -> dict[str, Any]:
        """What ran, for programs: networks by their labels."""
        stored = self.stored(self.cells[0], store)[0].numbers
        ran_on = {"hardware": stored["hardware"]} if "hardware" in stored else {}
        return {
            **ran_on,
            "seeds": list(self.scale.seeds),
            "networks": [self._facts(cell, store) for cell in self.cells],
        }

    def _facts(self, cell: Cell, store: Store) -> dict[str, Any]:
        train, validation, test = self.images(cell, store)
        run = self.runs(cell)[0]
        return {
            "name": cell.label,
            "data": self.scale.cell(cell).bench.data.name,
            "images": {"train": train, "validation": validation, "test": test},
            "attacked": self.tested(cell, store, "robust"),
            "epochs": self._epochs(run)[self._stage(store)],
            "of": _length(run),
            "keys": [run.key for run in self.runs(cell)],
        }

    def _told(self, cell: Cell, store: Store) -> str:
        scaled = self.scale.cell(cell)
        train, validation, test = self.images(cell, store)
        plan, run = scaled.bench.plan, self.runs(cell)[0]
        epoch, length = self._epochs(run)[self._stage(store)], _length(run)
        epochs = f"{length} epochs" if epoch == length else f"{epoch} of {length} epochs"
        augmented = "" if plan.augment == NoAugment() else f", {plan.augment}"
        shorter = "" if scaled.steps == cell.steps else f", searches cut to {self.scale.most_steps} steps"
        seeds = self.scale.seeds
        return (
            f"{scaled.bench.data.name}: {train:,} images to train on, {validation:,} to validate, {test:,} to test; "
            f"{scaled.bench.network}; {epochs} of batches of {plan.batch}, {plan.descent}{augmented}{shorter}; "
            f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}."
        )

    def _stand(self, store: Store) -> list[str]:
        """At which epoch all networks stand, and which stand farther; nothing if they are judged at the end only."""
        if not self.scale.stages:
            return []
        stage = self._stage(store)
        (epoch, length) = next((self._epochs(run)[stage], _length(run)) for run in self._runs())
        farther = [
            f"{cell.label}, seed {run.seed}: epoch {later}"
            for cell in self.cells
            for run in self.runs(cell)
            for later in self._epochs(run)[stage + 1 :]
            if self._parts(run, later) in store
        ]
        told = f"All networks stand at epoch {epoch} of {length}."
        return [told, *([f"Judged farther on: {'; '.join(farther)}."] if farther else [])]

    def _stage(self, store: Store) -> int:
        """The number of the furthest that all networks have reached."""
        if len(self.scale.stages) < 2:
            return 0
        for stage in reversed(range(len(self.scale.stages) or 1)):
            if all(self._parts(run, self._epochs(run)[stage]) in store for run in self._runs()):
                return stage
        return 0

    def _stops(self, epoch: int) -> tuple[int, ...]:
        """Where weights are kept on the way, so that other studies can judge them later: every ten epochs."""
        return (*range(10, epoch, 10), epoch) if self.scale.stages else (epoch,)

    def _epochs(self, run: Run) -> tuple[int, ...]:
        return self.scale.stages or (_length(run),)

    def _missing(self, store: Store) -> list[tuple[Run, int]]:
        pieces = [(run, epoch) for run in self._runs() for epoch in self._epochs(run)]
        return [(run, epoch) for run, epoch in pieces if not self._done(run, epoch, store)]

    def _done(self, run: Run, epoch: int, store: Store) -> bool:
        """Also if it was judged later only: a training does not go back."""
        return any(self._parts(run, later) in store for later in self._epochs(run) if later >= epoch)

    def _parts(self, run: Run, epoch: int) -> Parts:
        return judged_parts(self.judge, run, epoch)

    def _seconds(self, run: Run, epoch: int, begun: float) -> float:
        return training(run, max(0.0, epoch - begun), self.pace) + judging(run, self.judge.passes, self.pace)

    def _runs(self) -> list[Run]:
        """Cells may stand in several tables, and a network in several cells."""
        return list({run.key: run for cell in self.cells for run in self.runs(cell)}.values())


class _Reporting:
    """A Watch that only counts."""

    def __init__(self, on_progress: OnProgress) -> None:
        self.report = on_progress

    def begin(self, done: int, updates: int) -> None:
        self.report(done)

    def updated(self, record: Record) -> None:
        if record.update % 5 == 0:
            self.report(record.update)

    def validated(self, line: Line) -> None: ...

    def end(self) -> None: ...


def _train_and_judge(run: Run, stops: Sequence[int], judge: Judge, store: Store, on_progress: OnProgress) -> None:
    task, folder, epoch = prepare(run), _folder(run, store), stops[-1]
    last = epoch == _length(run)
    for stop in stops[: -1 if last else None]:
        _keep(task, folder, stop, on_progress)
    network = run_training(task, folder, [_Reporting(on_progress)]).network if last else _kept(task, folder, epoch)
    if network is None:
        return
    assert isinstance(task.train, Dataset)
    assert isinstance(task.validation, Dataset)
    assert isinstance(task.test, Dataset)
    numbers, arrays = judge(network, Splits(task.train, task.validation, task.test))
    looks = [line for line in folder.lines() if "clean" in line and line["update"] <= _updates(task, epoch)]
    store.save(judged_parts(judge, run, epoch), {**numbers, "looks": looks, "hardware": hardware()}, arrays, {})


def _keep(task: PreparedRun, folder: RunFolder, epoch: int, on_progress: OnProgress) -> None:
    """The weights after that epoch, unless the training is farther already."""
    if not _weights(folder, epoch).exists():
        outcome = run_training(task, folder, [_Reporting(on_progress)], until=AtEpoch(epoch))
        if outcome.update == _updates(task, epoch):
            save_weights(_weights(folder, epoch), outcome.network, {"key": task.key, "update": outcome.update})


def _kept(task: PreparedRun, folder: RunFolder, epoch: int) -> Network | None:
    if not _weights(folder, epoch).exists():
        return None
    load_weights(_weights(folder, epoch), task.network)
    return task.network


def _weights(folder: RunFolder, epoch: int) -> Path:
    return folder.path / f"epoch-{epoch}.safetensors"


def _updates(task: PreparedRun, epoch: int) -> int:
    return epoch * task.updates_per_epoch


def judged_parts(judge: Judge, run: Run, epoch: int) -> Parts:
    """What decides the figures of a network after an epoch, the last or one before."""
    return (judge, run) if epoch == _length(run) else (judge, run, Epochs(epoch))


def _folder(run: Run, store: Store) -> RunFolder:
    return RunFolder.of(run, store.root / "trained")


def _description(run: Run, store: Store) -> Mapping[str, Any]:
    return read_description(_folder(run, store).description)


def _epochs_trained(run: Run, store: Store) -> float:
    """By the checkpoint of its folder; 0 if there is none."""
    lines = _folder(run, store).lines()
    return lines[-1]["update"] / updates(run, 1) if lines else 0.0


def _length(run: Run) -> int:
    assert isinstance(run.plan.length, Epochs)
    return run.plan.length.count
