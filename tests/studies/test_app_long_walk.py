from pathlib import Path

import numpy as np

from widemargin.report.store import Store
from widemargin_studies import app_long_walk


def test_the_long_walk_is_judged_image_by_image(tmp_path: Path) -> None:
    store, own = Store(tmp_path), app_long_walk.SMALL
    (trial,) = own.runs(own.cells[0])
    ways = {"UDP": np.linspace(0.4, 0.6, 8), "PGD": np.linspace(3, 4, 8)}
    arrays = {"labels": np.arange(8), **{name: np.zeros((8, 3, 4, 4)) for name in ("clean", *ways)}}
    for name, way in ways.items():
        arrays |= {f"{name} {what}": way for what in ("l2", "linf", "lead")}
        arrays[f"{name} own probability"] = np.full(8, 0.3 if name == "UDP" else 0.001)
    store.save((own.judge, trial), {"n": 8, "names": list("abcdefgh")}, arrays, {})
    (tmp_path / "trained" / trial.key).mkdir(parents=True)
    (tmp_path / "trained" / trial.key / "run.yaml").write_text("data: {rows: [1234, 80, 100]}")
    assert [verdict.word for verdict in own.report(store).verdicts] == ["held", "held"]
