"""Standard training against UDP on scikit-learn's digits, both audited: the last part of the demonstration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from widemargin.auditing.config import AuditConfig
from widemargin.auditing.runner import audit
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Dataset, digest
from widemargin.data.images import ImageSet
from widemargin.method import Method
from widemargin.networks.named import LeNetSpec
from widemargin.perturb.balls import Linf
from widemargin.recipes import standard, udp
from widemargin.report.document import Picture
from widemargin.report.figures import COLOURS, panels
from widemargin.report.store import Parts, Store
from widemargin.report.tables import Table
from widemargin.runs.prepare import prepare
from widemargin.runs.run import Run
from widemargin.runs.runner import run_training
from widemargin.training.plan import Adam, Cosine, Epochs, Plan
from widemargin.workers import Job, OnProgress

DATA = ImageSet("digits")
PLAN = Plan(Epochs(20), Adam(2e-3, Cosine()), batch=32)
METHODS: dict[str, Method] = {"standard": standard(), "UDP-PGD": udp(Linf(0.3), alpha=0.06, steps=5)}
CONFIG = AuditConfig((Linf(0.1), Linf(0.2)), points=30, chunk=30)


@dataclass(frozen=True)
class DigitsAudit:
    """How both are trained, and what is asked of them."""

    plan: Plan = PLAN
    config: AuditConfig = CONFIG

    def run_of(self, name: str) -> Run:
        return Run(DATA, LeNetSpec(side=8), METHODS[name], self.plan, seed=0)

    def parts(self, name: str) -> Parts:
        return ("audit", self.run_of(name), self.config)

    def jobs(self, store: Store) -> list[Job]:
        updates = self.plan.updates(DATA.published_rows)
        return [
            Job(f"{name}, digits, and its audit", updates + self.config.points, self._train_and_audit, (name, store))
            for name in METHODS
            if self.parts(name) not in store
        ]

    def missing(self, store: Store) -> int:
        return sum(self.parts(name) not in store for name in METHODS)

    def _train_and_audit(self, name: str, store: Store, on_progress: OnProgress) -> None:
        task = prepare(self.run_of(name))
        updates = self.plan.updates(len(task.train))
        network = run_training(task).network
        on_progress(updates)
        assert isinstance(task.test, Dataset)
        target = AuditTarget(network, name, digest(*network.state_dict().values()), task.test, DATA.name)
        result = audit(
            target, self.config, store.root / "audits", on_progress=lambda done, of: on_progress(updates + done)
        )
        assert result is not None
        arrays = {part: result.points[part] for part in ("margin", "certified", "breaks")}
        store.save(self.parts(name), result.summary(), arrays, {})

    def table(self, store: Store) -> Table:
        rows = []
        for name in METHODS:
            stored = store.load(self.parts(name))
            numbers, margin = stored.numbers, stored.arrays["margin"]
            warnings = [finding["name"] for finding in numbers["findings"] if finding["verdict"] != "fine"]
            rows.append(
                (
                    name,
                    f"{100 * numbers['clean']:.0f}",
                    *(_with_interval(at) for at in numbers["robust"]),
                    f"{np.median(margin):.3f}",
                    f"{np.median(stored.arrays['certified']):.3f}",
                    ", ".join(warnings) or "none",
                )
            )
        radii = (f"linf {ball.radius:g}" for ball in self.config.balls)
        return Table(
            "Digits: both audited",
            ("method", "clean %", *radii, "median margin", "certified", "warnings"),
            tuple(rows),
            f"Robust accuracy in percent under AutoAttack with its 95 % interval, {self.config.points} test points; "
            "margins in linf: the smallest perturbation found, and the certified radius, medians; warnings: what "
            "diagnoses flag.",
        )

    def picture(self, store: Store) -> Picture:
        figure, axes = panels(1, 1, size=4.0)
        panel = axes[0][0]
        radii = np.linspace(0, self.config.balls[-1].radius, 200)
        for colour, name in zip(COLOURS, METHODS, strict=False):
            stored = store.load(self.parts(name))
            for reach, style, what in (("margin", "solid", "no way known"), ("certified", "dotted", "certified")):
                shares = [100 * float((stored.arrays[reach] > radius).mean()) for radius in radii]
                panel.plot(radii, shares, color=colour, linestyle=style, label=f"{name}, {what}")
            accuracy = [100 * at["accuracy"] for at in stored.numbers["robust"]]
            panel.plot([ball.radius for ball in self.config.balls], accuracy, "o", color=colour)
        panel.set_xlabel("radius, linf")
        panel.set_ylabel("digits that stay right, %")
        panel.set_ylim(0, 100)
        panel.legend(fontsize=7)
        return Picture("digits", figure, "How many test digits stay right over the radius; dots: AutoAttack.")


DIGITS = DigitsAudit()


def _with_interval(robust: dict[str, float]) -> str:
    return f"{100 * robust['accuracy']:.0f} [{100 * robust['low']:.0f}, {100 * robust['high']:.0f}]"
