"""How far can a classifier's sureness be believed?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import rich.console
from tyro.conf import Positional, arg

from widemargin.cli.asked import (
    answers,
    check_as_trained,
    data_asked,
    folder_for,
    foreign,
    made,
    place_of,
    with_tests,
)
from widemargin.cli.choice import check_seed
from widemargin.cli.display import say
from widemargin.cli.train import device_of
from widemargin.conduct.model import load_model
from widemargin.data.alike import alike
from widemargin.data.labelled import Labelled, Parts
from widemargin.data.splits import at_most
from widemargin.data.toy import Cloud
from widemargin.files import write_json, write_whole
from widemargin.measure.calibration import doubts
from widemargin.report.calibration_page import Calibrated, page
from widemargin.uncertainty.network import check_not_probabilities

_OPTIONAL = arg(metavar="TEXT", help_behavior_hint="")


@dataclass(frozen=True)
class Calibrate:
    """Measure whether a classifier knows how sure it may be: accuracy, ECE, NLL, Brier score, and how well each measure
    of uncertainty tells wrong answers from right ones and foreign examples from its own (AUROC).  Writes
    calibration.json and calibration.html.

    For example: widemargin calibrate runs/1a2b3c --outside digits."""

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A run's folder or its name in runs/, a model.pt2 or model.onnx, or my_file.py:MyNet, which runs that file."""
    outside: Annotated[tuple[str, ...], arg(metavar="TEXT...", help_behavior_hint="")] = ()
    """Names, folders or files of foreign examples; their test parts are used.  Images are scaled to the network's
    height and width (bilinear) and to its colours.  [none]"""
    data: Annotated[str | None, _OPTIONAL] = None
    """A name, folder or file, as for `widemargin train`; its test part is used.  [a run's own data]"""
    weights: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Weights for my_file.py:MyNet: .safetensors, or a .pt state dict."""
    points: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """The most examples of each set, drawn class by class.  [all]"""
    label: str = "label"
    """Column of the labels in a table."""
    size: Annotated[tuple[int, int] | None, arg(metavar="HEIGHT WIDTH", help_behavior_hint="")] = None
    """Height and width to which a folder's images are scaled."""
    seed: int = 0
    """Decides which examples are drawn."""
    out: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Folder for the results.  [the run's own; for other models calibrations/ and the model's path]"""
    device: str = "cpu"
    """cpu or cuda."""

    def __call__(self, console: rich.console.Console) -> None:
        if self.points is not None and self.points < 1:
            raise ValueError(f"--points must be at least 1, got {self.points}")
        check_seed(self.seed)
        place = place_of(self.model)
        model = load_model(place, self.weights)
        model.network.to(device_of(self.device))
        data = data_asked(self.data, model, self.label, self.size)
        called, drawn = with_tests(data)
        check_as_trained(data, drawn, model, place)
        tests = self._some(drawn)
        check_not_probabilities(answers(model.network, tests.to(self.device), called))
        outside: dict[str, Cloud] = {}
        notes = list(model.notes)
        for word in self.outside:
            name, parts = with_tests(data_asked(word, model, self.label, self.size, "--outside"))
            there = self._some(parts)
            if name in (called, *outside):
                raise ValueError(f"--outside must name other examples than --data, each once, got {word}")
            try:
                outside[name] = self._alike(there, tests)
            except ValueError as problem:
                raise ValueError(f"--outside {word}: {problem}") from None
            if there.stored.shape[1:] != tests.stored.shape[1:]:
                notes.append(f"{name} was {_shape(there)} and is scaled (bilinear) to {_shape(tests)}.")
        usual = folder_for(self.out, place, "calibrations", self.weights)
        out = made(usual / f"on-{called}" if self.out is None and foreign(data, drawn, model, place) else usual)
        found = doubts(model.network, tests.to(self.device), outside)
        _tell(Calibrated(model.name, model.digest, called, found, tuple(notes)), out, console)

    def _some(self, drawn: Parts) -> Labelled:
        return drawn.test if self.points is None else at_most(drawn.test, self.points, self.seed)

    def _alike(self, foreign: Labelled, tests: Labelled) -> Cloud:
        there = alike(foreign, tuple(tests.stored.shape[1:]))
        return Cloud(there.points.to(self.device), there.labels.to(self.device))


def _shape(examples: Labelled) -> str:
    channels, height, width = examples.stored.shape[1:]
    return f"{height} x {width}{' in colour' if channels == 3 else ''}"


def _tell(found: Calibrated, out: Path, console: rich.console.Console) -> None:
    report = page(found)
    report.print(console)
    write_json(out / "calibration.json", found.summary())
    write_whole(out / "calibration.html", report.html().encode())
    for name in ("calibration.json", "calibration.html"):
        say(console, f"  {out / name}")
