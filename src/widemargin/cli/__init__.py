"""The verbs.  This room knows machines, files and terminals, and no mathematics.

What a verb asks is in `verbs`, what it does in the module of its name: help needs only the former, and no torch."""

from __future__ import annotations

import os
import sys
from concurrent.futures.process import BrokenProcessPool
from typing import Annotated, NoReturn

import tyro
from rich.console import Console
from tyro.conf import subcommand

from widemargin.cli.verbs.audit import Audit
from widemargin.cli.verbs.calibrate import Calibrate
from widemargin.cli.verbs.compare import Compare
from widemargin.cli.verbs.runs import Export, Resume, Runs
from widemargin.cli.verbs.study import Demo, Study, Version
from widemargin.cli.verbs.sweep import Sweep
from widemargin.cli.verbs.train import Train
from widemargin.cli.verbs.zoo import Zoo

# Before torch is imported: threads that wait for others would spin, and two busy processes slow each other twentyfold.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

Verb = (
    Annotated[Demo, subcommand("demo")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Sweep, subcommand("sweep")]
    | Annotated[Resume, subcommand("resume")]
    | Annotated[Runs, subcommand("runs")]
    | Annotated[Audit, subcommand("audit")]
    | Annotated[Calibrate, subcommand("calibrate")]
    | Annotated[Compare, subcommand("compare")]
    | Annotated[Export, subcommand("export")]
    | Annotated[Zoo, subcommand("zoo")]
    | Annotated[Study, subcommand("study")]
    | Annotated[Version, subcommand("version")]
)


def main(arguments: list[str] | None = None) -> None:
    verb: Verb = tyro.cli(
        Verb,
        prog="widemargin",
        description="Train classifiers that keep a wide margin, and measure how wide it is.",
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    try:
        verb(Console())
    except ValueError as error:
        _refuse(str(error))
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        if error.filename is None:
            _refuse(f"the system refused to read or write ({reason}); what was stored before is kept")
        _refuse(f"{error.filename} cannot be read or written ({reason})")
    except MemoryError:
        _refuse(_TOO_LARGE)
    except RecursionError:
        _refuse("something here is nested too deeply to be read: it is damaged, or none of ours")
    except RuntimeError as error:
        # So torch says it, of a processor's memory and of a GPU's.
        if "allocate memory" not in str(error) and type(error).__name__ != "OutOfMemoryError":
            raise
        _refuse(_TOO_LARGE)
    except BrokenProcessPool:
        print(
            "widemargin: a worker process was killed, maybe for want of memory; run the same command to go on, or take "
            "fewer --workers",
            file=sys.stderr,
        )
        sys.exit(1)
    except KeyboardInterrupt:
        print("widemargin: stopped; what was saved is kept, and the same command goes on from there", file=sys.stderr)
        sys.exit(130)


_TOO_LARGE = (
    "this computer has not enough memory for that: take a smaller network (--capacity, --width, --members) or smaller "
    "batches (--batch); what was saved before is kept"
)


def _refuse(sentence: str) -> NoReturn:
    print(f"widemargin: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(2)
