import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import rich.console

import widemargin as wm
from front_door import public_names
from widemargin.perturb.apgd import APGD
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import Ball
from widemargin.perturb.square import Square
from widemargin.report.store import Store
from widemargin.workers import Workers
from widemargin_studies import plane

SHORT = wm.Plan(wm.Updates(30), wm.Adam(5e-3))


@dataclass(frozen=True)
class Few:
    def __call__(self, ball: Ball, classes: int, rows_at_once: int = 0) -> tuple[Attack, ...]:
        return (APGD(ball, steps=5), Square(ball, queries=5))


@pytest.fixture
def workers() -> Workers:
    return Workers(rich.console.Console(file=io.StringIO()), 1)


def test_a_run_is_measured_once_and_alike_alone_or_abreast(tmp_path: Path, workers: Workers) -> None:
    method = wm.udp(wm.Linf(0.5, wm.OPEN), 0.05, 10)
    runs = plane.runs_of(wm.data.TwoDistances(), method, SHORT, (0, 1, 2))
    together, alone = Store(tmp_path / "together"), Store(tmp_path / "alone")
    workers.do(plane.jobs(runs, {method: "udp"}, together), "Training")
    workers.do(plane.jobs(runs[1:2], {method: "udp"}, alone), "Training")
    assert plane.missing(runs, together) == 0
    assert plane.missing(runs, alone) == 2
    found, twin = plane.measured(runs[1], together), plane.measured(runs[1], alone)
    np.testing.assert_allclose(found.margin, twin.margin, atol=2e-3)
    before = (tmp_path / "together" / runs[0].key).stat().st_mtime_ns
    workers.do(plane.jobs(runs, {method: "udp"}, together), "Training")
    assert (tmp_path / "together" / runs[0].key).stat().st_mtime_ns == before


def test_the_key_names_all_that_decides_a_number() -> None:
    run = wm.runs.Run(wm.data.LMS5(1), wm.networks.MLPSpec((2, 8, 2)), wm.standard(), SHORT, 0)
    others = [
        replace(run, seed=1),
        replace(run, data=wm.data.LMS5(2)),
        replace(run, network=wm.networks.MLPSpec((2, 9, 2))),
        replace(run, method=wm.max_entropy(0.1)),
        replace(run, plan=replace(SHORT, length=wm.Updates(31))),
    ]
    assert len({run.key, *(other.key for other in others)}) == 6
    assert replace(run).key == run.key
    assert eval(repr(run), public_names()) == run


def test_a_run_without_margins_in_linf_is_trained_again_for_them(tmp_path: Path, workers: Workers) -> None:
    runs = plane.runs_of(wm.data.TwoDistances(), wm.standard(), replace(SHORT, length=wm.Updates(2)), (0, 1))
    store = Store(tmp_path / "runs")
    workers.do(plane.jobs(runs, {wm.standard(): "standard"}, store), "Training")
    assert plane.missing(runs, store) == 0
    assert plane.missing(runs, store, (2.0, np.inf)) == 2
    workers.do(plane.jobs(runs, {wm.standard(): "standard"}, store, norms=(2.0, np.inf)), "Training")
    assert plane.missing(runs, store, (2.0, np.inf)) == 0
    found = plane.measured(runs[0], store, np.inf)
    assert (np.abs(found.margin) <= np.abs(plane.measured(runs[0], store).margin) + 1e-4).all()
