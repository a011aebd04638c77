from pathlib import Path

import numpy as np

from plane_studies import workers
from widemargin.report.store import Store
from widemargin_studies import app_due_training
from widemargin_studies.app_due_training import DueTraining
from widemargin_studies.due import Due


def test_training_runs_once_and_is_reported(tiny_due: Due, tmp_path: Path) -> None:
    study, store = DueTraining(kernel=tiny_due), Store(tmp_path / "runs")
    assert study.missing(store) == 3
    study.run(store, workers())
    assert study.missing(store) == 0
    report = study.report(store)
    assert len(report.tables[0].rows) == 3
    assert all(path.is_file() for path in report.write(tmp_path / "report"))


def test_verdicts_of_training() -> None:
    def arrays(wrong: int, shift: float) -> dict[str, np.ndarray]:
        margin = np.where(np.arange(10) < wrong, -1.0, 1.0)
        return {"margin": margin, "best": np.ones(10), "lead": np.linspace(-1, 1, 20) + shift}

    found = {"clean": [arrays(0, 0.0)] * 5, "PGD-50": [arrays(4, 0.5)] * 5, "UDP-50": [arrays(0, 0.1)] * 5}
    assert [verdict.outcome for verdict in app_due_training.verdicts(found)] == ["held"] * 3
    few = {name: own[:3] for name, own in found.items()}
    assert [verdict.outcome for verdict in app_due_training.verdicts(few)] == ["undecided"] * 3
    swapped = {"clean": found["clean"], "PGD-50": found["UDP-50"], "UDP-50": found["PGD-50"]}
    assert [verdict.outcome for verdict in app_due_training.verdicts(swapped)] == ["not held"] * 3
