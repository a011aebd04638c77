"""The demonstration: what each way of training does to the margin, on two point sets and on digits, in minutes."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from widemargin.perturb.balls import L2, OPEN, Linf
from widemargin.recipes import udp_near, udpr
from widemargin.report.document import Report
from widemargin.report.store import Store
from widemargin.training.plan import Updates
from widemargin.workers import Workers
from widemargin_studies import digits_audit, fig3, plane

TITLE = "Demonstration: six ways of training, two point sets, and digits"
CORE_MINUTES = 5.0
SEEDS = range(5)
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


def cells() -> fig3.Cells:
    return {
        cell: [replace(run, plan=replace(run.plan, length=UPDATES)) for run in group]
        for cell, group in fig3.cells(METHODS, SEEDS).items()
    }


def run(store: Store, workers: Workers) -> None:
    # The longest first, so that no worker waits for another.
    workers.do(digits_audit.jobs(store) + fig3.jobs(cells(), store), "Training")


def missing(store: Store) -> int:
    return plane.missing([run for group in cells().values() for run in group], store) + digits_audit.missing(store)


def report(store: Store) -> Report:
    runs = cells()
    measured = fig3.results(runs, store)
    return Report(
        "How wide is the margin?",
        "Six ways to train the same network on two point sets: first what we would take (UDP-near), then standard "
        "training and the usual perturbations (LDP-PGD, TRADES), then the paper's forms (UDP-PGD, UDPR). "
        f"{widest(measured)} The dashed line is the boundary with the widest margin. Then standard training and UDP on "
        "digits, both audited.",
        f"Seeds {SEEDS[0]}..{SEEDS[-1]}, {UPDATES.count} updates; MLP {plane.NETWORK.widths}, ReLU. LDP-PGD climbs the "
        f"loss, TRADES the divergence (corridor: radius 0.25; LMS-5: the largest admissible, {fig3.ADMISSIBLE}); "
        "UDP-PGD and UDPR climb the uncertainty with radius 0.5; in UDP-near samples that were moved less count more. "
        f"Digits: {digits_audit.run_of('UDP-PGD').network}, {digits_audit.PLAN}, UDP-PGD with radius 0.3, seed 0.",
        (),
        (*(fig3.margin_table(data, by_name, SEEDS) for data, by_name in measured.items()), digits_audit.table(store)),
        (fig3.regions(runs, store, "margins"), digits_audit.picture(store)),
    )


def widest(measured: fig3.Results) -> str:
    """Which method came first in the tables that follow: it need not be the one that we would take."""
    means = {
        fig3.TITLES[data]: {name: fmean(margins.worst for margins in group) for name, group in by_name.items()}
        for data, by_name in measured.items()
    }
    first = [
        f"{title}: {max(worst, key=worst.__getitem__)} ({max(worst.values()):.2f})" for title, worst in means.items()
    ]
    return f"The widest worst margin, as a share of the best possible one: {'; '.join(first)}."
