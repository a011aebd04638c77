"""`widemargin train`: the words become a run, which is trained in its folder."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import rich.console
import torch

from widemargin.cli.choice import Choice, chosen
from widemargin.cli.display import Board, Display, say
from widemargin.cli.stopping import Asked, listening, seconds
from widemargin.cli.validation import ValidationAttack, figures_text, validation_attack
from widemargin.cli.verbs.train import RunWords, Train
from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import PreparedRun, prepare
from widemargin.runs.runner import Observer, Outcome, run_training
from widemargin.runs.threads import with_threads
from widemargin.training.processes import Processes, process_group


def train(words: Train, console: rich.console.Console) -> None:
    if words.stop_after is not None:
        seconds(words.stop_after)
    title, trial, drawn = chosen(choice_of(words))
    folder = RunFolder(Path("runs") / trial.key if words.out is None else words.out)
    with listening(words.stop_after) as wish:
        do(prepare(trial, drawn, device_of(words.device), title), folder, console, words.tensorboard, wish)


def choice_of(words: RunWords[Any, Any], **said: Any) -> Choice:
    """The words that decide a run; `said` replaces some."""
    given = vars(words) | said
    return Choice(**{field.name: given[field.name] for field in fields(Choice) if field.name in given})


def device_of(name: str) -> torch.device:
    try:
        device = torch.device(name)
        # A device without values, such as meta, is none to train on.
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError):
        raise ValueError(f"--device must be one that this computer has, got {name}: take cpu") from None
    return device


def do(task: PreparedRun, folder: RunFolder, console: rich.console.Console, tensorboard: bool, wish: Asked) -> None:
    with process_group(next(task.network.parameters()).device) as processes, with_threads(task, folder) as task:
        if processes.rank > 0:
            outcome = run_training(task, folder, processes=processes, until=wish)
        else:
            outcome = _lead(task, folder, console, tensorboard, processes, wish)
    if not outcome.finished:
        where = f"at update {outcome.update} of {task.updates}, which is saved"
        wish.leave(where, f"widemargin resume {shlex.quote(str(folder.path))}")


def _lead(
    task: PreparedRun,
    folder: RunFolder,
    console: rich.console.Console,
    tensorboard: bool,
    processes: Processes,
    wish: Asked,
) -> Outcome:
    attack = validation_attack(task.description["run"])
    watchers: list[Observer] = [Display(console, attack)]
    if tensorboard:
        watchers.append(Board(folder.path / "tensorboard"))
    say(console, f"{task.description['title'] or 'a run'}, in {folder.path}")
    unlabelled = task.description["data"].get("unlabelled")
    if unlabelled:
        used = f"{unlabelled:,} of {len(task.train):,} training rows have no label: they are trained on too"
        say(console, task.left_out or used)
    outcome = run_training(task, folder, watchers, processes=processes, until=wish)
    if outcome.figures:
        say(console, f"test: {figures_text(outcome.figures, attack)}")
    if outcome.finished:
        ball = attack.options if isinstance(attack, ValidationAttack) else "--eps RADIUS"
        say(console, f"Next: widemargin audit {shlex.quote(str(folder.path))} {ball}")
    return outcome
