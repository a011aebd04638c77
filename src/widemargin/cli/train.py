"""`widemargin train`: a run, from the words of the command line to its folder."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path

import rich.console
import torch

from widemargin.cli.describe import describe, notes_on
from widemargin.cli.display import Board, Display, say
from widemargin.cli.stopping import Asked, listening, seconds
from widemargin.cli.validation import ValidationAttack, figures_text, validation_attack
from widemargin.cli.verbs.train import Train
from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import PreparedRun, prepare
from widemargin.runs.runner import Observer, Outcome, run_training
from widemargin.runs.threads import with_threads
from widemargin.training.processes import Processes, process_group
from widemargin.uncertainty.wrap import checked_device


def train(words: Train, console: rich.console.Console, clock: Callable[[], float] = time.monotonic) -> None:
    if words.stop_after is not None:
        seconds(words.stop_after)
    if words.eps == "auto":
        # Up to half a minute for many images.
        say(console, "--eps auto: measuring how far the classes of the training split are apart")
    title, run, drawn = describe(words)
    folder = RunFolder.of(run, Path("runs")) if words.out is None else RunFolder(words.out)
    for note in notes_on(drawn):
        say(console, f"Warning: {note}")
    with listening(words.stop_after, clock) as wish:
        do(prepare(run, drawn, device_of(words.device), title), folder, console, words.tensorboard, wish)


def device_of(name: str) -> torch.device:
    return checked_device(name, "--device")


def do(prepared: PreparedRun, folder: RunFolder, console: rich.console.Console, tensorboard: bool, wish: Asked) -> None:
    device = next(prepared.network.parameters()).device
    with process_group(device) as processes, with_threads(prepared, folder) as prepared:
        if processes.rank > 0:
            outcome = run_training(prepared, folder, processes=processes, until=wish)
        else:
            outcome = _lead(prepared, folder, console, tensorboard, processes, wish)
    if not outcome.finished:
        where = f"at update {outcome.update} of {prepared.updates}, which is saved"
        wish.leave(where, f"widemargin resume {shlex.quote(str(folder.path))}")


def _lead(
    prepared: PreparedRun,
    folder: RunFolder,
    console: rich.console.Console,
    tensorboard: bool,
    processes: Processes,
    wish: Asked,
) -> Outcome:
    attack = validation_attack(prepared.description["run"])
    observers: list[Observer] = [Display(console, attack)]
    if tensorboard:
        observers.append(Board(folder.path / "tensorboard"))
    say(console, f"{prepared.description['title'] or 'a run'}, in {folder.path}")
    unlabelled = prepared.description["data"].get("unlabelled")
    if unlabelled:
        used = f"{unlabelled:,} of {len(prepared.train):,} training rows have no label: they are trained on too"
        say(console, prepared.left_out or used)
    outcome = run_training(prepared, folder, observers, processes=processes, until=wish)
    if outcome.figures:
        say(console, f"test: {figures_text(outcome.figures, attack)}")
    if outcome.finished:
        ball = attack.options if isinstance(attack, ValidationAttack) else "--eps RADIUS"
        say(console, f"Next: widemargin audit {shlex.quote(str(folder.path))} {ball}")
    return outcome
