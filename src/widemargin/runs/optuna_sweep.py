"""A sweep over Optuna's storage, which any number of processes and computers may share.

Every trial is a run in a folder of its own: it goes on from its checkpoint if it is interrupted.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import optuna
from filelock import FileLock
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from widemargin.runs.folder import Line, RunFolder
from widemargin.runs.prepare import PreparedRun
from widemargin.runs.runner import Observer, run_training
from widemargin.runs.sweep import Range, State, SweepTrial
from widemargin.training.loop import Diverged, Record

_RETRIES = 3
"""A setting whose process is killed as often as that is given up: it may be what kills it."""
_OVER = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True)
class Heartbeat:
    """Seconds: a trial that was not heard of for `grace` is taken for dead, and put back into the queue."""

    interval: int = 10
    grace: int = 60


@dataclass(frozen=True)
class Storage:
    address: str
    name: str
    """Of the sweep: one database may hold many."""
    heartbeat: Heartbeat = Heartbeat()


class SweepWatcher(Protocol):
    """What a sweep says while it goes."""

    def begin(self, number: int, parameters: Mapping[str, float]) -> Sequence[Observer]:
        """Returns who watches this trial."""
        ...

    def end(self, trial: SweepTrial) -> None: ...
    def waiting(self, running: int) -> None: ...


def opened(storage: Storage, out: Path, data: Mapping[str, Any], seed: int, warmup: int) -> optuna.Study:
    """The sweep of this name, begun or to go on with; its data must be the same in every process.

    From the sixth trial on, one is stopped if after `warmup` updates its best validation so far is below the median of
    what the others had by then.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    out.mkdir(parents=True, exist_ok=True)
    # Tables and sweep are made by one process alone; those that come at the same time find them.
    with FileLock(out / ".sweep.lock"):
        try:
            study = optuna.create_study(
                storage=_connected(storage),
                sampler=_ByNumber(seed),
                pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=warmup),
                study_name=storage.name,
                direction="maximize",
                load_if_exists=True,
            )
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError, ImportError) as problem:
            reason = str(problem).partition("\n")[0]
            raise ValueError(
                "--storage must be the address of a database that can be written, such as sqlite:///sweep.db, got "
                f"{storage.address} ({reason})"
            ) from None
        begun = study.user_attrs.get("data")
        if begun is None:
            study.set_user_attr("data", dict(data))
        elif begun != data:
            raise ValueError(
                "the data must be as it was when the sweep began, but it has changed: begin a new one with another "
                "--storage and --out"
            )
    return study


@dataclass(frozen=True, eq=False)
class Sweep:
    study: optuna.Study
    ranges: Mapping[str, Range]
    count: int
    prepare: Callable[[Mapping[str, float]], PreparedRun]
    """The run of a setting, validated by an attack that is the same for all."""
    out: Path
    watcher: SweepWatcher
    patience: float = 1.0
    """Seconds between looks at trials that run elsewhere."""

    def go(self) -> None:
        """Until so many trials are over, in this process or another."""
        waiting_for = 0
        while (over := self._number_of(*_OVER)) < self.count:
            _fail_stale(self.study)
            running = self._number_of(TrialState.RUNNING)
            if over + running < self.count or self._number_of(TrialState.WAITING):
                self.study.optimize(self._train, n_trials=1, catch=(_Surplus,), callbacks=[self._end])
                continue
            if running != waiting_for:
                self.watcher.waiting(running)
            waiting_for = running
            time.sleep(self.patience)

    def trials(self) -> tuple[SweepTrial, ...]:
        """All that are over, in the order in which they began."""
        return tuple(map(_as_trial, self.study.get_trials(deepcopy=False, states=_OVER)))

    def folder(self, number: int) -> RunFolder:
        return RunFolder(self.out / f"trial-{number:04d}")

    def tested(self, trial: SweepTrial) -> Mapping[str, Any] | None:
        """What the best weights of this trial do on the test part, which nothing before this looks at; None if it was
        trained elsewhere and its folder is not here."""
        folder = self.folder(trial.number)
        if not folder.checkpoint.exists():
            return None
        with FileLock(self.out / ".test.lock"):
            if not folder.read_figures():
                # A trial is done without them, and then it has an empty file.
                folder.figures.unlink(missing_ok=True)
            return run_training(self.prepare(trial.parameters), folder).figures

    def _number_of(self, *states: TrialState) -> int:
        return len(self.study.get_trials(deepcopy=False, states=states))

    def _train(self, trial: optuna.Trial) -> float:
        earlier = self.study.get_trials(deepcopy=False, states=(*_OVER, TrialState.RUNNING))
        if sum(other.number < trial.number for other in earlier) >= self.count:
            raise _Surplus
        # One that goes on has a number of its own in the storage, and keeps the first one's folder.
        number = trial.user_attrs.get("number", trial.number)
        trial.set_user_attr("number", number)
        values = {name: within.rounded(_suggested(trial, name, within)) for name, within in self.ranges.items()}
        trial.set_user_attr("parameters", values)
        prepared, folder = replace(self.prepare(values), test=None), self.folder(number)
        reporting = _Reporting(trial)
        for line in folder.lines():
            reporting.note(line)
        try:
            run_training(prepared, folder, [*self.watcher.begin(number, values), reporting])
        except Diverged as problem:
            trial.set_user_attr("diverged", str(problem))
            raise optuna.TrialPruned from None
        except KeyboardInterrupt:
            _queue(self.study, self.study.get_trials(deepcopy=False)[trial.number])
            raise
        return float(reporting.best["robust"])

    def _end(self, study: optuna.Study, trial: FrozenTrial) -> None:
        if trial.state in _OVER:
            self.watcher.end(_as_trial(trial))


class _Surplus(Exception):
    """Two processes asked for the last trial at the same time: the later one is not trained."""


@dataclass(eq=False)
class _Reporting:
    """Watches a run: reports its validations, and stops it where it is hopeless."""

    trial: optuna.Trial
    best: Line = field(default_factory=dict)
    reported: set[int] = field(default_factory=set)

    def begin(self, done: int, updates: int) -> None: ...
    def updated(self, record: Record) -> None: ...
    def end(self) -> None: ...

    def validated(self, line: Line) -> None:
        self.note(line)
        if self.trial.should_prune():
            raise optuna.TrialPruned

    def note(self, line: Line) -> None:
        """What came after the checkpoint of an interrupted run happens again, the same."""
        if "robust" not in line or line["update"] in self.reported:
            return
        self.reported.add(line["update"])
        self.trial.report(line["robust"], line["update"])
        if not self.best or (line["robust"], line["clean"]) > (self.best["robust"], self.best["clean"]):
            self.best = line
            for name in ("robust", "clean"):
                self.trial.set_user_attr(name, line[name])


class _ByNumber(optuna.samplers.BaseSampler):
    """TPE, seeded anew by the number of each trial: processes that share a sweep must not draw the same."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._latest: tuple[int, optuna.samplers.TPESampler] | None = None

    def _sampler(self, trial: FrozenTrial) -> optuna.samplers.TPESampler:
        if self._latest is None or self._latest[0] != trial.number:
            seed = (1_000_003 * self.seed + trial.number) % 2**32
            self._latest = trial.number, optuna.samplers.TPESampler(seed=seed)
        return self._latest[1]

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._sampler(trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._sampler(trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._sampler(trial).sample_independent(study, trial, param_name, param_distribution)


def _suggested(trial: optuna.Trial, name: str, within: Range) -> float:
    if within.whole:
        return trial.suggest_int(name, int(within.low), int(within.high), log=within.log)
    return trial.suggest_float(name, within.low, within.high, log=within.log)


def _connected(storage: Storage) -> optuna.storages.RDBStorage:
    # A process waits for another's turn to write instead of failing.
    patient = {"connect_args": {"timeout": 60}} if storage.address.startswith("sqlite") else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.storages.RDBStorage(
            storage.address,
            engine_kwargs=patient,
            heartbeat_interval=storage.heartbeat.interval,
            grace_period=storage.heartbeat.grace,
            heartbeat_stale_trial_callback=_retry,
        )


def _fail_stale(study: optuna.Study) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.storages.fail_stale_trials(study)


def _retry(study: optuna.Study, trial: FrozenTrial) -> None:
    """A trial whose process is gone."""
    retries = trial.user_attrs.get("retries", 0)
    if retries < _RETRIES:
        _queue(study, trial, retries=retries + 1)


def _queue(study: optuna.Study, trial: FrozenTrial, **notes: int) -> None:
    again = optuna.trial.create_trial(
        state=TrialState.WAITING,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs={**trial.user_attrs, **notes},
    )
    study.add_trial(again)


def _as_trial(trial: FrozenTrial) -> SweepTrial:
    notes = trial.user_attrs
    stopped: State = "diverged" if "diverged" in notes else "pruned"
    state: State = "complete" if trial.state is TrialState.COMPLETE else stopped
    return SweepTrial(notes["number"], state, notes["parameters"], notes.get("robust"), notes.get("clean"))
