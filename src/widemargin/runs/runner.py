"""Training a prepared run to its end or a stop, in a folder from which it goes on after any interruption."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from widemargin.data.dataset import Examples
from widemargin.files import Damaged, Note, read_tensors
from widemargin.measure.accuracy import accuracy
from widemargin.measure.robustness import robust_accuracy
from widemargin.runs.folder import Line, Records, RunFolder, best_again
from widemargin.runs.prepare import PreparedRun
from widemargin.runs.run_yaml import written
from widemargin.runs.stop import AtEnd, Stop, Stopped
from widemargin.training.averaging import averaged_network
from widemargin.training.checkpoint import load_training, load_weights, save_training, save_weights
from widemargin.training.loop import Diverged, Record, Training, continue_training
from widemargin.training.processes import ALONE, Processes
from widemargin.uncertainty.network import Network


class Observer(Protocol):
    """Gets all that happens, and changes nothing."""

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


_CALM, _AT_END = Pace(), AtEnd()


@dataclass(frozen=True, eq=False)
class Outcome:
    network: Network
    """As it is in the end: the average, if the plan has one."""
    best: Network
    """As it was at the best validation; without validation, as in the end."""
    records: Sequence[Line]
    figures: dict[str, Any]
    """What the best network does on the test part; empty if there is none, and until the run is done."""
    update: int
    finished: bool
    """Is this the end of the plan?  If not, the same call goes on from here."""


def run_training(
    prepared: PreparedRun,
    folder: RunFolder | None = None,
    observers: Sequence[Observer] = (),
    pace: Pace = _CALM,
    processes: Processes = ALONE,
    until: Stop = _AT_END,
) -> Outcome:
    """Begin or go on, to the end or until a stop.  In a folder, killing this at any moment and calling it again changes
    no number, nor does any number of stops.

    Of several processes the first measures and writes; the others only train.
    """
    prepared = prepared if folder is None else folder.continued(prepared)
    if processes.rank > 0:
        return _follow(prepared, folder, processes, until)
    claim = nullcontext() if folder is None else folder.claimed(prepared.description)
    with claim, _Course.entered(prepared, folder) as course:
        # Nothing may be written before all have read.
        processes.wait()
        if folder is not None and prepared.schema is not None:
            folder.save_schema(prepared.schema)
        course.go(observers, pace, processes, until)
        return course.finish() if course.at_end else course.pause()


def _follow(prepared: PreparedRun, folder: RunFolder | None, processes: Processes, until: Stop) -> Outcome:
    training = Training.begin(prepared.network, prepared.plan)
    if folder is not None and folder.checkpoint.exists():
        load_training(folder.checkpoint, training, prepared.key)
    processes.wait()
    for _ in _updates(prepared, training, processes, until):
        pass
    network = averaged_network(training, prepared.train, prepared.plan)
    return Outcome(network, network, [], {}, training.update, training.update == prepared.updates)


def _updates(
    prepared: PreparedRun, training: Training, processes: Processes, until: Stop
) -> Iterator[tuple[Record, bool]]:
    """With each, whether it is the last before a stop, on which all processes agree."""

    def stops() -> bool:
        return processes.any(until.reached(training.update, training.update / prepared.updates_per_epoch))

    if stops():
        return
    for record in continue_training(
        training, prepared.train, prepared.method, prepared.plan, (prepared.seed,), processes
    ):
        stop = stops()
        yield record, stop
        if stop:
            return


@dataclass(eq=False)
class _Course:
    prepared: PreparedRun
    folder: RunFolder | None
    training: Training
    records: Records
    best: Line | None
    best_network: Network
    saved_at: float = field(default_factory=time.monotonic)
    saved_update: int = 0

    @classmethod
    @contextmanager
    def entered(cls, prepared: PreparedRun, folder: RunFolder | None) -> Iterator[_Course]:
        training, more = Training.begin(prepared.network, prepared.plan), None
        if folder is not None and folder.checkpoint.exists():
            more = _loaded(folder, training, prepared.key)
        records = Records(None if folder is None else folder.records, more)
        best = None if more is None else more["best"]
        course = cls(
            prepared, folder, training, records, best, copy.deepcopy(prepared.network), saved_update=training.update
        )
        course._load_best()
        try:
            yield course
        finally:
            records.close()

    @property
    def at_end(self) -> bool:
        return self.training.update == self.prepared.updates

    def go(self, observers: Sequence[Observer], pace: Pace, processes: Processes, until: Stop) -> None:
        prepared, training = self.prepared, self.training
        for observer in observers:
            observer.begin(training.update, prepared.updates)
        try:
            for record, stop in _updates(prepared, training, processes, until):
                self.records.append({"update": record.update, "loss": record.loss})
                epochs, inside = divmod(record.update, prepared.updates_per_epoch)
                if self.at_end or (inside == 0 and epochs % prepared.validated.every == 0):
                    self._validate(record.update / prepared.updates_per_epoch, observers)
                for observer in observers:
                    observer.updated(record)
                waited = time.monotonic() - self.saved_at
                if stop or self.at_end or waited > (pace.shortest if inside == 0 else pace.longest):
                    self._save()
        except Stopped:
            self._save()
            raise
        except Diverged as problem:
            kept = "" if self.folder is None else f"; the checkpoint of update {self.saved_update} is kept"
            raise Diverged(f"{problem}{kept}") from None
        finally:
            for observer in observers:
                observer.end()

    def pause(self) -> Outcome:
        network = averaged_network(self.training, self.prepared.train, self.prepared.plan)
        best = self.best_network if self.best is not None else network
        return Outcome(network, best, self.records.lines, {}, self.training.update, finished=False)

    def finish(self) -> Outcome:
        prepared = self.prepared
        network = averaged_network(self.training, prepared.train, prepared.plan)
        best = self.best_network if self.best is not None else network
        figures = None
        if self.folder is not None:
            self._keep_last(self.folder, network)
            # What is damaged is measured again.
            with suppress(Damaged):
                figures = self.folder.read_figures()
        if figures is None:
            figures = self._tested(best)
            if self.folder is not None:
                self.folder.save_figures(figures)
        return Outcome(network, best, self.records.lines, dict(figures), self.training.update, finished=True)

    def _keep_last(self, folder: RunFolder, network: Network) -> None:
        """Where nothing was validated they are not there yet; or they may be damaged."""
        try:
            read_tensors(folder.last)
        except Damaged:
            line = next((line for line in reversed(self.records.lines) if "loss" not in line), None)
            save_weights(folder.last, network, {"key": self.prepared.key, **(line or {"update": self.training.update})})

    def _load_best(self) -> None:
        """Weights that are lost can be had again only if they are those of the checkpoint."""
        if self.folder is None or self.best is None:
            return
        try:
            load_weights(self.folder.best, self.best_network)
        except Damaged as problem:
            if self.best["update"] != self.training.update:
                raise Damaged(f"{problem}: {best_again(self.folder)}") from None
            network = averaged_network(self.training, self.prepared.train, self.prepared.plan)
            self.best_network.load_state_dict(network.state_dict())
            save_weights(self.folder.best, network, {"key": self.prepared.key, **self.best})

    def _tested(self, network: Network) -> dict[str, Any]:
        return {} if self.prepared.test is None else self._measured(network, self.prepared.test)

    def _validate(self, epoch: float, observers: Sequence[Observer]) -> None:
        if self.prepared.validation is None:
            return
        network = averaged_network(self.training, self.prepared.train, self.prepared.plan)
        figures = self._measured(network, self.prepared.validation)
        line = {"update": self.training.update, "epoch": int(epoch) if epoch.is_integer() else epoch, **figures}
        self.records.append(line)
        note = {"key": self.prepared.key, **line}
        if self.best is None or _merit(line) > _merit(self.best):
            self.best = line
            self.best_network.load_state_dict(network.state_dict())
            if self.folder is not None:
                save_weights(self.folder.best, network, note)
        if self.folder is not None:
            save_weights(self.folder.last, network, note)
        for observer in observers:
            observer.validated(line)

    def _measured(self, network: Network, examples: Examples) -> dict[str, Any]:
        attack, figures = self.prepared.validated.attack, {"clean": accuracy(network, examples)}
        if attack is not None:
            figures["robust"] = robust_accuracy(network, examples, attack)
        return figures | {
            name: robust_accuracy(network, examples, also) for name, also in self.prepared.validated.watched
        }

    def _save(self) -> None:
        if self.folder is not None:
            more = {"best": self.best, **self.records.secured(), "description": written(self.prepared.description)}
            save_training(self.folder.checkpoint, self.training, self.prepared.key, more)
        self.saved_at, self.saved_update = time.monotonic(), self.training.update


def _loaded(folder: RunFolder, training: Training, key: str) -> Note:
    try:
        return load_training(folder.checkpoint, training, key)
    except Damaged as problem:
        raise Damaged(
            f"{problem}: delete it, and `widemargin resume {folder.path}` starts over and ends with the same result; "
            "until then `widemargin export` still has the weights of the best and of the last validation"
        ) from None


def _merit(line: Line) -> tuple[float, float]:
    """Robust accuracy decides; among equals the clean one, and then the earlier."""
    clean = float(line["clean"])
    return float(line.get("robust", clean)), clean
