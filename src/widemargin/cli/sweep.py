"""`widemargin sweep`: a search for good settings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path

import rich.console

from widemargin.cli.describe import describe
from widemargin.cli.display import Display, say
from widemargin.cli.reports import print_report
from widemargin.cli.train import device_of
from widemargin.cli.validation import ValidationAttack, figures_text, validation_attack
from widemargin.cli.verbs.numbers import number
from widemargin.cli.verbs.sweep import SEARCHED, Sweep
from widemargin.cli.verbs.train import Train
from widemargin.data.optional import import_optional
from widemargin.report.sweep_page import Swept, page
from widemargin.runs.folder import Line
from widemargin.runs.keys import key_of
from widemargin.runs.prepare import PreparedRun, prepare
from widemargin.runs.runner import Observer
from widemargin.runs.sweep import Range, SweepTrial, best_first
from widemargin.training.loop import Record


def sweep(words: Sweep, console: rich.console.Console) -> None:
    import_optional("optuna", "'widemargin[sweeps]'", "`widemargin sweep`")
    from widemargin.runs import optuna_sweep

    asked = _Words.of(words)
    # A wrong word must not wait for a database, nor leave one.
    first = asked.prepared({name: within.rounded(within.low) for name, within in asked.ranges.items()})
    assert first.validation is not None
    attack = validation_attack(first.description["run"])
    judge = f"accuracy on the validation split under {attack}"
    console.print(f"Judge of all trials, never searched: {judge}", style="bold", highlight=False)
    storage = optuna_sweep.Storage(words.storage or f"sqlite:///{words.out}/sweep.db", asked.name)
    warmup = first.plan.updates(len(first.train)) // 4
    study = optuna_sweep.opened(storage, words.out, first.description["data"], words.seed, warmup)
    watcher = _Lines(console, words.trials, attack)
    search = optuna_sweep.Sweep(study, asked.ranges, words.trials, asked.prepared, words.out, watcher)
    search.go()
    trials = search.trials()
    best = best_first(trials)[:1]
    figures = search.tested(best[0]) if best else None
    swept = Swept(first.description["title"], str(attack), asked.ranges, trials, len(first.validation), figures)
    report = page(swept)
    print_report(report, swept.summary(), words.json, console)
    for path in report.write(words.out):
        say(console, f"  {path}")
    for trial in best:
        folder = search.folder(trial.number).path
        for line in _next(asked.trained(trial.parameters), folder, attack):
            say(console, line)


_NAMED = (
    *("data", "method", "network", "eps", "alpha", "steps", "weight", "patience", "scale", "measure", "norm", "latent"),
    *("cut", "epochs", "batch", "optimizer", "lr", "schedule", "augment", "average", "mixed", "fraction", "capacity"),
    *("width", "members", "dropout", "dropout_draws", "deep_kernel", "label", "validation", "test", "drop", "only"),
    *("categories", "missing", "standardize", "no_standardize", "eps_column", "fixed", "class_weights", "mean", "std"),
    *("unlabelled", "size", "box", "validate_every", "seed", "device", "validate_eps", "out", "stop_after"),
    "tensorboard",
)
"""What the name of a sweep always says, in the order of the first sweeps, so that those are found again."""


@dataclass(frozen=True)
class _Named:
    """The words of a run as the name of its sweep says them: an option that came later only where it is given."""

    train: Train

    def __repr__(self) -> str:
        later = [field.name for field in fields(self.train) if field.name not in _NAMED]
        given = [name for name in later if getattr(self.train, name) != getattr(Train, name)]
        return f"Train({', '.join(f'{name}={getattr(self.train, name)!r}' for name in (*_NAMED, *given))})"


@dataclass(frozen=True)
class _Words:
    """A sweep's words, understood."""

    fixed: Train
    ranges: Mapping[str, Range]

    @classmethod
    def of(cls, sweep: Sweep) -> _Words:
        if not sweep.judge_eps > 0:
            raise ValueError(
                "--judge-eps must be a radius above 0, by which all trials are judged: it is not searched, since the "
                f"smallest would always win, got {sweep.judge_eps:g}"
            )
        if sweep.trials < 1:
            raise ValueError(f"--trials must be at least 1, got {sweep.trials}")
        said = {name: _understood(name, getattr(sweep, name)) for name in SEARCHED}
        ranges = {name: value for name, value in said.items() if isinstance(value, Range)}
        if not ranges:
            raise ValueError(
                f"a sweep needs a range to search: give {', '.join(f'--{name}' for name in SEARCHED[:-1])} or "
                f"--{SEARCHED[-1]} as LOW:HIGH or LOW:HIGH:log"
            )
        if sweep.eps_column and "eps" in ranges:
            raise ValueError("--eps-column scales columns by --eps, so trials could not be compared: give one --eps")
        numbers = {name: None if isinstance(value, Range) else value for name, value in said.items()}
        # The folder is that of the sweep, and not of a run.
        names = {field.name for field in fields(Train)} & {field.name for field in fields(sweep)} - {"out"}
        shared = {name: getattr(sweep, name) for name in names} | numbers
        return cls(Train(**shared, validate_eps=sweep.judge_eps), ranges)

    @property
    def name(self) -> str:
        """Follows from all that decides what is searched: a changed command is another sweep."""
        return f"sweep-{key_of(_Named(replace(self.fixed, device=Train.device)), sorted(self.ranges.items()))}"

    def trained(self, parameters: Mapping[str, float]) -> Train:
        return replace(self.fixed, **dict(parameters))  # type: ignore[arg-type]

    def prepared(self, parameters: Mapping[str, float]) -> PreparedRun:
        title, run, drawn = describe(self.trained(parameters))
        return prepare(run, drawn, device_of(self.fixed.device), title)


@dataclass(frozen=True)
class _Lines:
    """A line for every trial that begins and ends, and a bar for the one that runs."""

    console: rich.console.Console
    count: int
    attack: ValidationAttack | str | None

    def begin(self, number: int, parameters: Mapping[str, float]) -> Sequence[Observer]:
        said = ", ".join(f"{name} {value:g}" for name, value in parameters.items())
        self.console.print(f"trial {number}, of {self.count} in all: {said}", highlight=False)
        return [_Bar(Display(self.console))]

    def end(self, trial: SweepTrial) -> None:
        figures = {"robust": trial.robust, "clean": trial.clean}
        said = figures_text({name: share for name, share in figures.items() if share is not None}, self.attack)
        self.console.print(f"trial {trial.number}: {trial.state}{', ' if said else ''}{said}", highlight=False)

    def waiting(self, running: int) -> None:
        self.console.print(f"waiting for {running} trials of other processes, or for their end", highlight=False)


@dataclass(frozen=True)
class _Bar:
    """The bar of a run without a line for every epoch: a sweep has many of them."""

    display: Display

    def begin(self, done: int, updates: int) -> None:
        self.display.begin(done, updates)

    def updated(self, record: Record) -> None:
        self.display.updated(record)

    def validated(self, line: Line) -> None: ...

    def end(self) -> None:
        self.display.end()


def _understood(name: str, words: str | None) -> Range | float | int | None:
    if words is None:
        return None
    low, *more = words.split(":")
    whole = name == "steps"
    try:
        if not more:
            return int(low) if whole else number(low)
        high, *scale = more
        if scale not in ([], ["log"]):
            raise ValueError("after LOW:HIGH only :log may come")
        return Range(number(low), number(high), bool(scale), whole)
    except ValueError as problem:
        raise ValueError(
            f"--{name} must be a {'whole ' if whole else ''}number, LOW:HIGH or LOW:HIGH:log, got {words} ({problem})"
        ) from None


def _next(words: Train, folder: Path, attack: ValidationAttack | str | None) -> list[str]:
    assert isinstance(attack, ValidationAttack)
    again = replace(words, seed=words.seed + 1)
    return [
        f"Next: widemargin audit {shlex.quote(str(folder))} {attack.options}",
        f"and with another seed: widemargin train {shlex.join(words_of(again))}",
    ]


def words_of(train: Train) -> list[str]:
    """What to give to `widemargin train` for this run."""
    words = []
    for field in fields(train):
        value = getattr(train, field.name)
        if field.default is not MISSING and value == field.default:
            continue
        words.append(f"--{field.name.replace('_', '-')}")
        if value is not True:
            words += map(str, value) if isinstance(value, tuple) else [str(value)]
    return words
