"""`widemargin calibrate`: accuracy, calibration and uncertainty of a classifier."""

from __future__ import annotations

from pathlib import Path

import rich.console

from widemargin.cli.describe import check_seed
from widemargin.cli.display import print_json, say
from widemargin.cli.inputs import (
    answers,
    check_as_trained,
    data_asked,
    folder_for,
    foreign,
    made,
    place_of,
    with_tests,
)
from widemargin.cli.train import device_of
from widemargin.cli.verbs.calibrate import Calibrate
from widemargin.data.dataset import Dataset, Splits
from widemargin.data.resize import resize
from widemargin.data.splits import at_most
from widemargin.files import write_json, write_whole
from widemargin.io.load import load_model
from widemargin.measure.calibration import uncertainty_report
from widemargin.report.calibration_page import Calibrated, page
from widemargin.uncertainty.network import check_not_probabilities


def calibrate(words: Calibrate, console: rich.console.Console) -> None:
    if words.points is not None and words.points < 1:
        raise ValueError(f"--points must be at least 1, got {words.points}")
    check_seed(words.seed)
    place = place_of(words.model)
    model = load_model(place, words.weights)
    model.network.to(device_of(words.device))
    data = data_asked(words.data, model, words.label, words.size, test=words.test)
    called, drawn = with_tests(data)
    check_as_trained(data, drawn, model, place)
    tests = _some(words, drawn)
    check_not_probabilities(answers(model.network, tests.to(words.device), called))
    outside: dict[str, Dataset] = {}
    notes = [*model.notes, *(f"{note}." for note in drawn.notes)]
    for word in words.outside:
        name, parts = with_tests(data_asked(word, model, words.label, words.size, "--outside"))
        there = _some(words, parts)
        if name in (called, *outside):
            raise ValueError(f"--outside must name other examples than --data, each once, got {word}")
        try:
            outside[name] = _alike(words, there, tests)
        except ValueError as problem:
            raise ValueError(f"--outside {word}: {problem}") from None
        if there.stored.shape[1:] != tests.stored.shape[1:]:
            notes.append(f"{name} was {_shape(there)} and is scaled (bilinear) to {_shape(tests)}.")
    usual = folder_for(words.out, place, "calibrations", words.weights)
    out = made(usual / f"on-{called}" if words.out is None and foreign(data, drawn, model, place) else usual)
    report = uncertainty_report(model.network, tests.to(words.device), outside)
    _write(Calibrated(model.name, model.digest, called, report, tuple(notes)), out, words.json, console)


def _shape(examples: Dataset) -> str:
    channels, height, width = examples.stored.shape[1:]
    return f"{height} x {width}{' in colour' if channels == 3 else ''}"


def _write(calibrated: Calibrated, out: Path, json: bool, console: rich.console.Console) -> None:
    report = page(calibrated)
    if json:
        print_json(calibrated.summary())
    else:
        report.print(console)
    write_json(out / "calibration.json", calibrated.summary())
    write_whole(out / "calibration.html", report.html().encode())
    for name in ("calibration.json", "calibration.html"):
        say(console, f"  {out / name}")


def _some(words: Calibrate, drawn: Splits) -> Dataset:
    return drawn.test if words.points is None else at_most(drawn.test, words.points, words.seed)


def _alike(words: Calibrate, foreign: Dataset, tests: Dataset) -> Dataset:
    there = resize(foreign, tuple(tests.stored.shape[1:]))
    return Dataset(there.points.to(words.device), there.labels.to(words.device))
