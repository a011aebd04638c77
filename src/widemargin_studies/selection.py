"""Which radius of training would one choose?  "UDP's best eps is large", by the networks of App. E.1."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from widemargin.report.document import Report, Verdict
from widemargin.report.store import Store
from widemargin.report.tables import Table
from widemargin.report.verdicts import Estimate, Outcome, accuracy_of, exactly, greater
from widemargin_studies.beside import OURS, short, told
from widemargin_studies.clean_accuracy import APP_SCALES, METHODS, WithValidation, app_study, validation
from widemargin_studies.pixels import FASHION, Cell, ImageStudy

TITLE = "The radius that validation chooses, Fashion-MNIST"
PRINTED = {"PGD": 0.2, "TRADES": 0.2, "UDPR": 0.5, "UDP-PGD": 0.5}
"""Chosen in the paper's Table 2, by the test images."""


def _tell(study: ImageStudy, store: Store) -> Report:
    networks = {(cell.name, cell.eps): cell for cell in study.cells}
    radii = sorted({eps for _, eps in networks})
    estimates = {key: _validated(study, store, cell) for key, cell in networks.items()}
    chosen = {method: max(radii, key=lambda eps: estimates[method, eps].value) for method in METHODS}
    others = {method: chosen[method] for method in METHODS if method not in OURS}
    verdicts = tuple(
        Verdict(
            f"{method} is best with a larger radius than PGD and TRADES are.",
            best_is_larger({eps: estimates[method, eps] for eps in radii}, max(others.values())),
            f"{method} with eps {chosen[method]:g}: {estimates[method, chosen[method]].percent}; "
            + "; ".join(f"{other} with eps {eps:g}: {estimates[other, eps].percent}" for other, eps in others.items()),
            exactly(PRINTED[method] > max(PRINTED[other] for other in others)),
        )
        for method in OURS
    )
    validated = tuple(
        (
            method,
            *(f"{100 * estimates[method, eps].value:.1f}" for eps in radii),
            f"{chosen[method]:g}",
            f"{PRINTED[method]:g}",
        )
        for method in METHODS
    )
    tested = tuple(_tested(study, store, networks[method, chosen[method]]) for method in METHODS)
    clean, attacked = (study.tested(study.cells[0], store, name) for name in ("clean", "robust"))
    return Report(
        f"{study.TITLE}, scale {study.scale.name}",
        "Is UDP best with a large radius, at which other methods fail?",
        f"{study.settings(store)} For each method the radius with the best mean accuracy under PGD-20 on the "
        "validation images, over the l-infinity balls of the test. The paper chose by the test images that it reports.",
        verdicts,
        (
            Table(
                "Robust accuracy on the validation images in percent",
                ("method", *(f"eps {eps:g}" for eps in radii), "chosen", "paper's choice"),
                validated,
                "The mean over the l-infinity balls of the test.",
            ),
            Table(
                "At that choice, on the test images, in percent",
                ("method", "clean", *map(short, FASHION.balls)),
                tested,
                f"On {clean:,} images, {attacked:,} of them attacked.",
            ),
        ),
    )


def _validated(study: ImageStudy, store: Store, cell: Cell) -> Estimate:
    """The mean over the balls, as in the paper.  They see the same images, so that it is no surer than one of them."""
    assert isinstance(study.judge, WithValidation)
    names, stored = [validation(ball) for ball in study.judge.chosen_by], study.stored(cell, store)
    return accuracy_of(
        [fmean(estimate.numbers[name] for name in names) for estimate in stored], stored[0].numbers["validated"]
    )


def best_is_larger(estimates: Mapping[float, Estimate], eps: float) -> Outcome:
    """Is the best of all larger radii better than the best of the others?"""
    larger, others = (
        [estimate for radius, estimate in estimates.items() if (radius > eps) == side] for side in (True, False)
    )
    if not larger:
        return "not held"
    return greater(*(max(side, key=lambda estimate: estimate.value) for side in (larger, others)))


def _tested(study: ImageStudy, store: Store, cell: Cell) -> tuple[str, ...]:
    names = ("clean", *map(repr, FASHION.balls))
    return (cell.label, *(told([100 * value for value in study.numbers(cell, store, name)]) for name in names))


FULL, ONE, SMALL = (app_study(TITLE, scale, radii, _tell) for scale, radii in APP_SCALES.values())
