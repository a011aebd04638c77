"""What is killed: every verb that writes, on embedded data, small enough to be done in a second or two."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from widemargin.report.store import Store, read_stored

_TRAIN = (
    "train --data digits --fraction .1 --network lenet --method udp --eps .2 --alpha .1 --steps 2 --epochs 3 "
    "--batch 32 --out run"
)
Result = dict[str, object]


@dataclass(frozen=True)
class Case:
    """`result` is what must be the same, however often it was killed."""

    name: str
    words: str
    result: Callable[[Path], Result]
    after_training: bool = True
    """Does it need a run that is done?"""
    quick: bool = True
    """Is it tried in every run of the tests?"""
    most: int = 1_000
    """Writes at which it is killed, chosen at random if it has more."""


def _bytes(*names: str) -> Callable[[Path], Result]:
    return lambda folder: {name: (folder / name).read_bytes() for name in names}


def _run_folder(folder: Path) -> Result:
    tensors = (f"run/{name}.safetensors" for name in ("checkpoint", "last", "best"))
    return _bytes(*tensors, "run/records.jsonl", "run/figures.json", "run/run.yaml")(folder)


def _audit(folder: Path) -> Result:
    summary, points = (json.loads((folder / "run" / name).read_text()) for name in ("audit.json", "points.json"))
    for content in (summary, points):
        # How long it took is not what it found.
        for name in ("seconds", "checksum") if isinstance(content, dict) else ():
            content.pop(name, None)
    return {"audit.json": summary, "points.json": points}


def _calibration(folder: Path) -> Result:
    return {"calibration.json": json.loads((folder / "run" / "calibration.json").read_text())}


def _study(folder: Path) -> Result:
    """All results are there and whole.  Networks that are trained side by side differ in their last bits from ones that
    are trained alone, so numbers are compared by two digits."""
    store = Store(folder / "runs")
    keys = sorted(path.parent.name for path in store.root.glob("[!.]*/numbers.json"))
    return {
        key: {name: _rounded(value) for name, value in read_stored(store.root / key).numbers.items()} for key in keys
    }


def _rounded(value: object) -> object:
    return float(f"{value:.2g}") if isinstance(value, float) else type(value).__name__


CASES = (
    Case("train", _TRAIN, _run_folder, after_training=False),
    Case("audit", "audit run --points 8 --eps .05 .1", _audit),
    Case("calibrate", "calibrate run --points 60", _calibration),
    Case("export", "export run --to model.safetensors", _bytes("model.safetensors")),
    Case("study", "study run fig1 --workers 1", _study, after_training=False, quick=False, most=9),
)
QUICK = tuple(case for case in CASES if case.quick)
