"""UDP with other estimators and measures of uncertainty, which the paper leaves open: margins, calibration, cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from widemargin.report.document import Report
from widemargin.report.store import Store
from widemargin.runs.run import Run
from widemargin.training.plan import Updates
from widemargin.workers import Job, Workers
from widemargin_studies.estimators import report as cross
from widemargin_studies.estimators.cells import (
    CORRIDOR,
    DIGITS,
    KINDS,
    SINGLE,
    SLABS,
    Data,
    Kind,
    Row,
    Setting,
    data_title,
    fitted,
    runs,
    same_as,
    setting_of,
)
from widemargin_studies.estimators.evaluate import EVALUATION, Evaluation


@dataclass(frozen=True)
class EstimatorStudy:
    CORE_MINUTES: float
    settings: Mapping[Data, Setting]
    kinds: Mapping[str, Kind]
    evaluation: Evaluation = EVALUATION
    TITLE: str = "UDP with other estimators and measures of uncertainty"

    def rows(self, data: Data) -> list[Row]:
        """Those that are trained on these data."""
        cross = [(kind, measure) for kind in self.kinds for measure in self.kinds[kind].climbs]
        return [row for row in cross if same_as(*row, data) is None]

    def runs(self, data: Data, row: Row) -> list[Run]:
        return runs(self.kinds[row[0]], row[1], data, self.settings[data])

    def run(self, store: Store, workers: Workers) -> None:
        jobs = [
            Job(
                f"{data_title(data)}, {', '.join(row)}, seed {run.seed}",
                _updates(run),
                self.evaluation.work,
                (run, row, store),
            )
            for data, row, run in self._all()
            if self.evaluation.parts(run, row) not in store
        ]
        workers.do(jobs, "Estimators")

    def missing(self, store: Store) -> int:
        return sum(self.evaluation.parts(run, row) not in store for _, row, run in self._all())

    def _all(self) -> list[tuple[Data, Row, Run]]:
        results = [
            (data, row, run) for data in self.settings for row in self.rows(data) for run in self.runs(data, row)
        ]
        # The first seed of everything before the second of anything.
        return sorted(results, key=lambda one: one[2].seed)

    def report(self, store: Store) -> Report:
        return cross.report(self.TITLE, {data: self._found(data, store) for data in self.settings}, self.settings)

    def _found(self, data: Data, store: Store) -> cross.Found:
        """One for each seed; Laplace after the networks that it was fitted to."""
        rows = self.rows(data)
        trained = {row: row for row in rows if row[0] == SINGLE}
        trained |= {fitted(row): row for row in trained} | {row: row for row in rows}
        return {
            row: [store.load(self.evaluation.parts(run, row)) for run in self.runs(data, behind)]
            for row, behind in trained.items()
        }


STUDY = EstimatorStudy(
    CORE_MINUTES=35.0,
    settings={
        CORRIDOR: setting_of(CORRIDOR, 1200, (810, 811)),
        SLABS: setting_of(SLABS, 400, (810, 811)),
        DIGITS: setting_of(DIGITS, 500, (810, 811)),
    },
    kinds=KINDS,
)


def _updates(run: Run) -> int:
    assert isinstance(run.plan.length, Updates)
    return run.plan.length.count
