"""The subcommands.  This package knows machines, files and terminals, and no mathematics.

The options of a subcommand are in `verbs`, what it does in the module of its name: help needs no torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Annotated, Any, NoReturn, Union

import tyro
from rich.console import Console
from tyro.conf import subcommand

from widemargin.cli.help_text import wrapped_help
from widemargin.cli.parser_errors import one_sentence
from widemargin.cli.spelling import Verbs, check_words, option_of
from widemargin.cli.verbs.audit import Audit
from widemargin.cli.verbs.calibrate import Calibrate
from widemargin.cli.verbs.compare import Compare
from widemargin.cli.verbs.groups import flat, grouped
from widemargin.cli.verbs.numbers import NotANumber
from widemargin.cli.verbs.runs import Export, Resume, Runs
from widemargin.cli.verbs.separation import Separation
from widemargin.cli.verbs.study import Demo, Study, StudyList, StudyReport, StudyRun, Version
from widemargin.cli.verbs.sweep import Sweep
from widemargin.cli.verbs.train import Train
from widemargin.cli.verbs.zoo import Zoo

# Before torch is imported: threads that wait for others would spin, and two busy processes slow each other twentyfold.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

Verb = Callable[[Console], None]
VERBS: Verbs = {
    "demo": Demo,
    "separation": Separation,
    "train": Train,
    "sweep": Sweep,
    "resume": Resume,
    "runs": Runs,
    "audit": Audit,
    "calibrate": Calibrate,
    "compare": Compare,
    "export": Export,
    "zoo": Zoo,
    "study": {"list": StudyList, "run": StudyRun, "report": StudyReport},
    "version": Version,
}


def main(arguments: list[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    try:
        execute(verb_of(["version"] if words == ["--version"] else words))
    except BrokenPipeError:
        # Whatever reads the output, `head` for instance, has had enough; nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def execute(verb: Verb) -> None:
    """What goes wrong is one sentence and an exit code."""
    # What a program reads is alone on standard output.
    console = Console(stderr=getattr(verb, "json", False))
    try:
        verb(console)
    except ValueError as error:
        _refuse(str(error))
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        if error.filename is None:
            _refuse(f"the system refused to read or write ({reason}); what was stored before is kept")
        _refuse(f"{error.filename} cannot be read or written ({reason})")
    except MemoryError:
        _refuse(_TOO_LARGE)
    except RecursionError:
        _refuse("something here is nested too deeply to be read: it is damaged, or not a widemargin file")
    except RuntimeError as error:
        kind = type(error).__name__
        # By name, since importing it takes a tenth of a second.
        if kind == "BrokenProcessPool":
            print(f"widemargin: {_KILLED}", file=sys.stderr)
            sys.exit(1)
        # So torch says it, of a processor's memory and of a GPU's.
        if "allocate memory" not in str(error) and kind != "OutOfMemoryError":
            raise
        _refuse(_TOO_LARGE)
    except KeyboardInterrupt:
        print("widemargin: stopped; what was saved is kept, and the same command continues from there", file=sys.stderr)
        sys.exit(130)


def verb_of(words: Sequence[str]) -> Verb:
    """The verb that the words mean, or an end with help or with what is wrong."""
    try:
        check_words(words, VERBS)
        return _parsed(words)
    except ValueError as error:
        _refuse(str(error))
    except NotANumber as error:
        _refuse(f"{option_of(str(error), words)} must be a number such as .03 or 8/255, got {error}")


def _parsed(words: Sequence[str]) -> Verb:
    kinds: dict[str, Any] = {**VERBS, "study": Study}
    # A script for a shell's completion is no text to wrap, and names the options of all verbs.
    is_script = any(word.startswith("--tyro-") for word in words)
    for name in kinds if is_script else {*words[:1]} & {*kinds}:
        kinds[name] = grouped(kinds[name])
    verbs: Any = Union[tuple(Annotated[kind, subcommand(name)] for name, kind in kinds.items())]  # noqa: UP007
    called = " ".join(("widemargin", *(word for word in words[:1] if not word.startswith("-"))))
    with nullcontext() if is_script else wrapped_help(), one_sentence(called):
        parsed = tyro.cli(
            verbs,
            prog="widemargin",
            description="Train classifiers that keep a wide margin, and measure how wide it is.",
            args=words,
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
        )
    verb: Verb = flat(parsed)
    return verb


_TOO_LARGE = (
    "this computer has not enough memory for that: take a smaller network (--capacity, --width, --members) or smaller "
    "batches (--batch); what was saved before is kept"
)

_KILLED = (
    "a worker process was killed, maybe for want of memory; run the same command to resume, or take fewer --workers"
)


def _refuse(sentence: str) -> NoReturn:
    print(f"widemargin: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(2)
