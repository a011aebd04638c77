"""`widemargin calibrate`: accuracy, calibration and uncertainty of a classifier."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import rich.console
from torch import Tensor

from widemargin.cli.describe import check_seed
from widemargin.cli.display import say
from widemargin.cli.inputs import (
    answers,
    check_as_trained,
    data_asked,
    folder_for,
    foreign,
    made,
    notes_on,
    place_of,
    with_tests,
)
from widemargin.cli.reports import print_report, write_report
from widemargin.cli.train import device_of
from widemargin.cli.verbs.calibrate import Calibrate
from widemargin.data.checks import ClassName
from widemargin.data.dataset import Dataset, Splits
from widemargin.data.resize import resize
from widemargin.data.splits import at_most, rows_at_most
from widemargin.files import write_whole
from widemargin.io.export import weights_of
from widemargin.io.load import Model, load_model
from widemargin.io.scaling import fitted_to, run_scaling, write_scaling
from widemargin.measure.calibration import calibration_of, member_logits, uncertainty_report_of
from widemargin.measure.scaling import scaling_of
from widemargin.report.calibration_page import Calibrated, Rescaled, page
from widemargin.runs.folder import RunFolder
from widemargin.shapes import MemberLogits
from widemargin.uncertainty.network import check_not_probabilities
from widemargin.uncertainty.prediction import Prediction
from widemargin.uncertainty.scaling import Kind, Scaling, common_logits, is_drawn


def calibrate(words: Calibrate, console: rich.console.Console) -> None:
    if words.points is not None and words.points < 1:
        raise ValueError(f"--points must be at least 1, got {words.points}")
    if words.csv is not None and not words.csv.absolute().parent.is_dir():
        raise ValueError(f"--csv must be in a folder that exists, got {words.csv}")
    check_seed(words.seed)
    place = place_of(words.model)
    # Members are told apart, and a fit begins, before any scaling.
    model = load_model(place, words.weights, scaled=False)
    model.network.to(device_of(words.device))
    data = data_asked(words, model)
    called, drawn = with_tests(data)
    check_as_trained(data, drawn, model, place)
    rows = rows_at_most(drawn.test, words.points or len(drawn.test), words.seed)
    tests = drawn.test.take(rows)
    check_not_probabilities(answers(model.network, tests.to(words.device), called))
    outside: dict[str, Dataset] = {}
    notes = [f"{note.rstrip('.')}." for note in notes_on(data, drawn, model)]
    for word in words.outside:
        name, parts = with_tests(data_asked(replace(words, data=word, test=None), model, "--outside"))
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
    is_foreign = words.out is None and foreign(data, drawn, model, place)
    out = made(usual / f"on-{called}" if is_foreign else usual)
    logits = member_logits(model.network, tests.to(words.device))
    # What a scaling is fitted to and applied to.
    common = common_logits(logits, is_drawn(model.network))
    ood = {name: member_logits(model.network, examples) for name, examples in outside.items()}
    report = uncertainty_report_of(logits, tests.labels, ood)
    if words.fit is None:
        scaling = _fitted_before(place)
    else:
        if drawn.validation is drawn.test:
            raise ValueError(
                "--fit needs a validation split, and a file that is all for tests has none: fit without --test and "
                "--data first, then measure with --test"
            )
        if RunFolder(out).description.exists() and out.resolve() != Path(place).resolve():
            raise ValueError(f"--out must not be another run's folder, got {out}: its scaling would be replaced")
        fitted = _fit(words.fit, model, drawn.validation.to(words.device), called)
        path = write_scaling(out, fitted.scaling, {**fitted.note, **_weights(place)})
        scaling = fitted.scaling
        say(console, f"  {path}")
        notes.append(_kept(path, place, fitted.rows))
    scaled = None if scaling is None else Rescaled(str(scaling), calibration_of(_scaled(common, scaling), tests.labels))
    if words.csv is not None:
        numbers = rows if drawn.test_rows is None else drawn.test_rows[rows]
        answer = None if scaling is None else _scaled(common, scaling)
        write_whole(words.csv, _csv(numbers, tests, logits, answer).encode())
        say(console, f"  {words.csv}")
    _write(Calibrated(model.name, model.digest, called, report, tuple(notes), scaled), out, words.json, console)


@dataclass(frozen=True)
class _Fitted:
    scaling: Scaling
    rows: int
    note: dict[str, Any]
    """For the file."""


def _fit(kind: Kind, model: Model, examples: Dataset, called: str) -> _Fitted:
    logits, labels = member_logits(model.network, examples), examples.labels.cpu()
    common = common_logits(logits, is_drawn(model.network))
    scaling = scaling_of(common, labels, kind)
    before, after = (calibration_of(one, labels).nll for one in (logits, _scaled(common, scaling)))
    note = {"data": called, "data_digest": examples.digest, "n": len(labels), "nll_before": before, "nll_after": after}
    return _Fitted(scaling, len(labels), note)


def _scaled(common: Tensor, scaling: Scaling) -> Tensor:
    """As one member, whatever there were."""
    return scaling(common).unsqueeze(0)


def _fitted_before(place: str) -> Scaling | None:
    """That of a run."""
    folder = RunFolder(Path(place))
    return run_scaling(folder, weights_of(folder, "best")) if folder.description.exists() else None


def _weights(place: str) -> dict[str, str]:
    """Of a run: to which weights the scaling belongs."""
    folder = RunFolder(Path(place))
    return fitted_to(weights_of(folder, "best")) if folder.description.exists() else {}


def _kept(path: Path, place: str, rows: int) -> str:
    said = f"The scaling was fitted to {rows:,} validation examples and is in {path}"
    if path.parent.resolve() == Path(place).resolve():
        return f"{said}: the run's predictions, audits and exports are scaled from now on; to undo it, delete the file."
    return f"{said}; it is not applied to the model."


def _csv(rows: Tensor, tests: Dataset, logits: MemberLogits, scaled: Tensor | None) -> str:
    """Confidence and entropy are those of the scaled answer, mutual information that of the members as trained."""
    answer = Prediction(logits if scaled is None else scaled)
    labels, classes = tests.labels.tolist(), answer.classes.tolist()
    information = Prediction(logits).mutual_information.tolist() if len(logits) > 1 else [""] * len(labels)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("row", "label", "prediction", "confidence", "entropy", "mutual_information", "correct"))
    # Rows are counted from 1 wherever a person reads them.
    columns = ((rows + 1).tolist(), labels, classes, answer.confidence.tolist(), answer.entropy.tolist(), information)
    for row, label, predicted, *numbers in zip(*columns, strict=True):
        writer.writerow((row, tests.names[label], _name(tests, predicted), *numbers, int(label == predicted)))
    return text.getvalue()


def _name(tests: Dataset, number: int) -> ClassName:
    """A network may have classes that these data have not."""
    return tests.names[number] if number < len(tests.names) else number


def _shape(examples: Dataset) -> str:
    channels, height, width = examples.stored.shape[1:]
    return f"{height} x {width}{' in colour' if channels == 3 else ''}"


def _write(calibrated: Calibrated, out: Path, json: bool, console: rich.console.Console) -> None:
    report, summary = page(calibrated), calibrated.summary()
    print_report(report, summary, json, console)
    write_report(report, summary, out, "calibration", console)


def _some(words: Calibrate, drawn: Splits) -> Dataset:
    return drawn.test if words.points is None else at_most(drawn.test, words.points, words.seed)


def _alike(words: Calibrate, foreign: Dataset, tests: Dataset) -> Dataset:
    there = resize(foreign, tuple(tests.stored.shape[1:]))
    return Dataset(there.points.to(words.device), there.labels.to(words.device))
