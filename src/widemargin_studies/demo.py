"""The demonstration: what each way of training does to the margin, on two point sets and on digits, in minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from widemargin.perturb.balls import L2, OPEN, Linf
from widemargin.recipes import udp_near, udpr
from widemargin.report.document import Report
from widemargin.report.store import Store
from widemargin.training.plan import Updates
from widemargin.workers import Workers
from widemargin_studies import fig3, plane
from widemargin_studies.digits_audit import DIGITS, DigitsAudit

UPDATES = Updates(1_200)
"""Fewer than the studies take, to be quick."""

METHODS: fig3.Methods = {
    data: {
        "UDP-near": udp_near(L2(0.2, OPEN), alpha=0.02, steps=10, scale=0.05),
        **methods,
        "UDPR": udpr(Linf(0.5, OPEN), alpha=0.05, steps=10, weight=1.0),
    }
    for data, methods in fig3.FOUR.items()
}
"""What we would take first, then what it is compared with, the paper's forms last."""


@dataclass(frozen=True)
class Demonstration:
    TITLE: str = "Demonstration: six ways of training, two point sets, and digits"
    CORE_MINUTES: float = 5.0
    seeds: Sequence[int] = range(5)
    updates: Updates = UPDATES
    grids: plane.Grids = plane.GRIDS
    digits: DigitsAudit = DIGITS

    def cells(self) -> fig3.Cells:
        return {
            cell: [replace(run, plan=replace(run.plan, length=self.updates)) for run in group]
            for cell, group in fig3.cells(METHODS, fig3.PLANS, self.seeds).items()
        }

    def run(self, store: Store, workers: Workers) -> None:
        # The longest first, so that no worker waits for another.
        workers.do(self.digits.jobs(store) + fig3.jobs(self.cells(), store, self.grids), "Training")

    def missing(self, store: Store) -> int:
        return plane.missing([run for group in self.cells().values() for run in group], store) + self.digits.missing(
            store
        )

    def report(self, store: Store) -> Report:
        runs = self.cells()
        measured = fig3.results(runs, store)
        return Report(
            "How wide is the margin?",
            "Six ways to train the same network on two point sets: first what we would take (UDP-near), then standard "
            "training and the usual perturbations (LDP-PGD, TRADES), then the paper's forms (UDP-PGD, UDPR). "
            f"{widest(measured)} The dashed line is the boundary with the widest margin. Then standard training and "
            "UDP on digits, both audited.",
            f"Seeds {self.seeds[0]}..{self.seeds[-1]}, {self.updates.count} updates; MLP {plane.NETWORK.widths}, ReLU. "
            "LDP-PGD climbs the loss, TRADES the divergence (corridor: radius 0.25; LMS-5: the largest admissible, "
            f"{fig3.ADMISSIBLE}); UDP-PGD and UDPR climb the uncertainty with radius 0.5; in UDP-near samples that "
            f"were moved less count more. Digits: {self.digits.run_of('UDP-PGD').network}, {self.digits.plan}, UDP-PGD "
            "with radius 0.3, seed 0.",
            (),
            (
                *(fig3.margin_table(data, by_name, self.seeds) for data, by_name in measured.items()),
                self.digits.table(store),
            ),
            (fig3.regions(runs, store, "margins"), self.digits.picture(store)),
        )


STUDY = Demonstration()


def widest(measured: fig3.Results) -> str:
    """Which method came first in the tables that follow: it need not be the one that we would take."""
    means = {
        fig3.TITLES[data]: {name: fmean(margins.worst_fraction for margins in group) for name, group in by_name.items()}
        for data, by_name in measured.items()
    }
    first = [
        f"{title}: {max(worst, key=worst.__getitem__)} ({max(worst.values()):.2f})" for title, worst in means.items()
    ]
    return f"The widest worst margin, as a share of the best possible one: {'; '.join(first)}."
