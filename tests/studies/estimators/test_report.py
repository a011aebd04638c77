import numpy as np
import pytest

from widemargin.report.store import Stored
from widemargin_studies.estimators import report
from widemargin_studies.estimators.cells import ENTROPY, GAP, LAPLACE, REFERENCE

pytest.importorskip("sklearn")


def stored(worst: float = 0.0, **arrays: list[float]) -> Stored:
    return Stored({"worst": worst}, {name: np.array(values) for name, values in arrays.items()})


def test_wider_is_every_seed_above_every_seed() -> None:
    near, far = ("ensemble", "entropy"), ("dropout", "entropy")
    found = {
        REFERENCE: [stored(0.4), stored(0.6)],
        near: [stored(0.6), stored(0.9)],
        far: [stored(0.61), stored(0.7)],
    }
    assert report.wider_margins(found) == [far]


def test_better_on_images_is_two_std_with_every_seed() -> None:
    row, zeros = ("ensemble", "entropy"), [0.0] * 8
    # A mean of 1/2 with a std of the mean of 0.189: 2.6 of them.
    better, barely = [1.0, 0, 1, 0, 1, 0, 1, 0], [1.0, 0, 0, 0, 0, 0, 0, 1]
    found = {REFERENCE: [stored(loss=zeros)] * 2, row: [stored(loss=better)] * 2}
    assert report.better_on_images(found, "loss", 1) == [row]
    assert report.better_on_images(found, "loss", -1) == []
    found[row] = [stored(loss=better), stored(loss=barely)]
    assert report.better_on_images(found, "loss", 1) == []


def test_spreads_between_estimators_and_between_measures() -> None:
    def cell(*robust: float) -> list[Stored]:
        return [Stored({"robust": one}, {}) for one in robust]

    found = {
        REFERENCE: cell(0.4, 0.6),
        ("single", GAP): cell(0.7),
        (LAPLACE, ENTROPY): cell(0.2),
        (LAPLACE, GAP): cell(0.2),
    }
    between, within = report.spreads(found, "robust")
    assert between == pytest.approx(0.4 / 2**0.5)
    assert within == pytest.approx((0.02 / 2) ** 0.5)
