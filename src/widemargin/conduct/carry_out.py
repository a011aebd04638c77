"""How does a run get done, whatever interrupts it?"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from widemargin.conduct.folder import Line, Records, RunFolder
from widemargin.conduct.task import Task
from widemargin.data.batches import updates_per_epoch
from widemargin.data.examples import Examples
from widemargin.measure.accuracy import accuracy
from widemargin.measure.robustness import robust_accuracy
from widemargin.train.averaging import answering
from widemargin.train.checkpoint import load_training, load_weights, save_training, save_weights
from widemargin.train.loop import Diverged, Record, Training, carry_on
from widemargin.train.processes import ALONE, Processes
from widemargin.uncertainty.network import Network


class Watch(Protocol):
    """Somebody who looks on and changes nothing."""

    def begin(self, done: int, updates: int) -> None: ...
    def updated(self, record: Record) -> None: ...
    def validated(self, line: Line) -> None: ...
    def end(self) -> None: ...


@dataclass(frozen=True)
class Pace:
    """Seconds between checkpoints: there is one after every epoch unless epochs are `shortest`, and in long ones."""

    shortest: float = 1.0
    longest: float = 300.0

    def __post_init__(self) -> None:
        if not 0 <= self.shortest <= self.longest:
            raise ValueError(f"Pace needs 0 <= shortest <= longest, got {self.shortest} and {self.longest}")


_CALM = Pace()


@dataclass(frozen=True, eq=False)
class Outcome:
    network: Network
    """As it is in the end: the average, if the plan has one."""
    best: Network
    """As it was at the best validation; without validation, as in the end."""
    records: Sequence[Line]
    figures: dict[str, Any]
    """What the best network does on the test part; empty if there is none, and before the end of the plan."""
    finished: bool = True
    """At the end of its plan?"""


def carry_out(
    task: Task,
    folder: RunFolder | None = None,
    watchers: Sequence[Watch] = (),
    pace: Pace = _CALM,
    processes: Processes = ALONE,
    until: int | None = None,
) -> Outcome:
    """Begin or go on, to the end.  In a folder, killing this at any moment and calling it again changes no number.

    `until` stops after that update, with a checkpoint: going on from there is the same run as if it had not stopped.
    Of several processes the first measures and writes; the others only train.
    """
    if processes.rank > 0:
        return _follow(task, folder, processes, until)
    with nullcontext() if folder is None else folder.claimed(task.description), _Course.entered(task, folder) as course:
        # Nothing may be written before all have read.
        processes.wait()
        course.go(watchers, pace, processes, until)
        return course.finish()


def _follow(task: Task, folder: RunFolder | None, processes: Processes, until: int | None) -> Outcome:
    training = Training.begin(task.network, task.plan)
    if folder is not None and folder.checkpoint.exists():
        load_training(folder.checkpoint, training, task.key)
    processes.wait()
    for _ in _up_to(until, training, task, processes):
        pass
    network = answering(training, task.train, task.plan)
    return Outcome(network, network, [], {}, training.update == task.plan.updates(len(task.train)))


def _up_to(until: int | None, training: Training, task: Task, processes: Processes) -> Iterator[Record]:
    """The updates that are left, but none after that one."""
    if until is None or training.update < until:
        for record in carry_on(training, task.train, task.method, task.plan, (task.seed,), processes):
            yield record
            if record.update == until:
                return


@dataclass(eq=False)
class _Course:
    task: Task
    folder: RunFolder | None
    training: Training
    records: Records
    best: Line | None
    best_network: Network
    saved_at: float = field(default_factory=time.monotonic)
    saved_update: int = 0

    @classmethod
    @contextmanager
    def entered(cls, task: Task, folder: RunFolder | None) -> Iterator[_Course]:
        training, best, size = Training.begin(task.network, task.plan), None, 0
        if folder is not None and folder.checkpoint.exists():
            more = load_training(folder.checkpoint, training, task.key)
            best, size = more["best"], more["records"]
        records = Records(None if folder is None else folder.records, size)
        course = cls(task, folder, training, records, best, copy.deepcopy(task.network), saved_update=training.update)
        try:
            yield course
        finally:
            records.close()

    def go(self, watchers: Sequence[Watch], pace: Pace, processes: Processes, until: int | None) -> None:
        task, training = self.task, self.training
        updates, per_epoch = task.plan.updates(len(task.train)), updates_per_epoch(len(task.train), task.plan.batch)
        for watch in watchers:
            watch.begin(training.update, updates)
        try:
            for record in _up_to(until, training, task, processes):
                self.records.append({"update": record.update, "loss": record.loss})
                for watch in watchers:
                    watch.updated(record)
                epochs, inside = divmod(record.update, per_epoch)
                at_end = record.update == updates
                if at_end or (inside == 0 and epochs % task.validated.every == 0):
                    self._validate(record.update / per_epoch, watchers)
                waited = time.monotonic() - self.saved_at
                if at_end or record.update == until or waited > (pace.shortest if inside == 0 else pace.longest):
                    self._save()
        except Diverged as problem:
            kept = "" if self.folder is None else f"; the checkpoint of update {self.saved_update} is kept"
            raise Diverged(f"{problem}{kept}") from None
        finally:
            for watch in watchers:
                watch.end()

    def finish(self) -> Outcome:
        task = self.task
        network = answering(self.training, task.train, task.plan)
        if self.training.update < task.plan.updates(len(task.train)):
            return Outcome(network, network, self.records.lines, {}, finished=False)
        best = self.best_network if self.best is not None else network
        if self.folder is not None and self.best is not None:
            load_weights(self.folder.best, best)
        if self.folder is None:
            return Outcome(network, best, self.records.lines, self._tested(best))
        figures = self.folder.read_figures()
        if figures is None:
            if self.best is None:
                save_weights(self.folder.last, network, {"key": task.key, "update": self.training.update})
            figures = self._tested(best)
            self.folder.save_figures(figures)
        return Outcome(network, best, self.records.lines, dict(figures))

    def _tested(self, network: Network) -> dict[str, Any]:
        return {} if self.task.test is None else self._measured(network, self.task.test)

    def _validate(self, epoch: float, watchers: Sequence[Watch]) -> None:
        if self.task.validation is None:
            return
        network = answering(self.training, self.task.train, self.task.plan)
        figures = self._measured(network, self.task.validation)
        line = {"update": self.training.update, "epoch": int(epoch) if epoch.is_integer() else epoch, **figures}
        self.records.append(line)
        note = {"key": self.task.key, **line}
        if self.best is None or _merit(line) > _merit(self.best):
            self.best = line
            self.best_network.load_state_dict(network.state_dict())
            if self.folder is not None:
                save_weights(self.folder.best, network, note)
        if self.folder is not None:
            save_weights(self.folder.last, network, note)
        for watch in watchers:
            watch.validated(line)

    def _measured(self, network: Network, examples: Examples) -> dict[str, Any]:
        attack, figures = self.task.validated.attack, {"clean": accuracy(network, examples)}
        if attack is not None:
            figures["robust"] = robust_accuracy(network, examples, attack)
        return figures | {name: robust_accuracy(network, examples, also) for name, also in self.task.validated.watched}

    def _save(self) -> None:
        if self.folder is not None:
            more = {"best": self.best, "records": self.records.secured()}
            save_training(self.folder.checkpoint, self.training, self.task.key, more)
        self.saved_at, self.saved_update = time.monotonic(), self.training.update


def _merit(line: Line) -> tuple[float, float]:
    """Robust accuracy decides; among equals the clean one, and then who came first."""
    clean = float(line["clean"])
    return float(line.get("robust", clean)), clean
