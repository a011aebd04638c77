"""A hundred labelled digits, the rest without labels: what do VAT and UDP make of the rest?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from widemargin.data.images import ImageSet
from widemargin.data.splits import held_out
from widemargin.measure.accuracy import accuracy
from widemargin.method import Method
from widemargin.networks.named import LeNetSpec
from widemargin.perturb.balls import L2
from widemargin.recipes import standard, udp_consistency, vat
from widemargin.report.document import Report, Verdict
from widemargin.report.store import Parts, Store
from widemargin.report.tables import Table, mean_std
from widemargin.report.verdicts import greater, mean_of
from widemargin.rng import Rng
from widemargin.training.loop import train
from widemargin.training.plan import Adam, Cosine, Plan, Updates
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single
from widemargin.workers import Job, OnProgress, Workers

DATA = ImageSet("digits")
LABELS = 100
COPIES = 12
"""Of every labelled digit among the others: about half of a batch then has labels, as where they come in batches of
their own (Miyato et al. 2018)."""
NETWORK = LeNetSpec(side=8)
PLAN = Plan(Updates(300), Adam(2e-3, Cosine()), batch=100)
METHODS: Mapping[str, Method] = {
    "standard": standard(),
    "VAT": vat(L2(1.0), weight=0.3),
    "UDP": udp_consistency(L2(0.5), alpha=0.125, steps=4, weight=0.3),
}
STANDARD, VAT, UDP = METHODS


@dataclass(frozen=True)
class SemiSupervised:
    TITLE: str = "Digits with 100 labels: standard, VAT and UDP on the unlabelled rest"
    CORE_MINUTES: float = 1.2
    seeds: tuple[int, ...] = (910, 911, 912)
    plan: Plan = PLAN

    def parts(self, name: str, seed: int) -> Parts:
        return ("semi-supervised", DATA, LABELS, COPIES, NETWORK, METHODS[name], self.plan, seed)

    def run(self, store: Store, workers: Workers) -> None:
        todo = [(name, seed) for name in METHODS for seed in self.seeds if self.parts(name, seed) not in store]
        updates = self.plan.updates(LABELS)
        workers.do(
            [Job(f"{name}, seed {seed}", updates, self.fit, (name, seed, store)) for name, seed in todo], self.TITLE
        )

    def missing(self, store: Store) -> int:
        return sum(self.parts(name, seed) not in store for name in METHODS for seed in self.seeds)

    def fit(self, name: str, seed: int, store: Store, on_progress: OnProgress) -> None:
        """The seed decides which digits have a label and the first weights: the same for every method."""
        splits = DATA.draw()
        rest, known = held_out(splits.train.labels, LABELS, Rng.seeded(seed, purpose="labelled"))
        every = splits.train.take(torch.cat([known.repeat(COPIES), rest]))
        # Standard training has no use for the rest.
        seen = splits.train.take(known) if name == STANDARD else every.hide_labels(torch.arange(COPIES * LABELS))
        network = Single(at_input(NETWORK.build(Rng.seeded(seed, purpose="weights").generators[0])))
        for record in train(network, seen, METHODS[name], self.plan, (seed,)):
            on_progress(record.update)
        numbers = {
            "validation": accuracy(network, splits.validation),
            "test": accuracy(network, splits.test),
            "digits": LABELS if name == STANDARD else len(splits.train),
            "n": len(splits.test),
        }
        store.save(self.parts(name, seed), numbers, {}, {})

    def report(self, store: Store) -> Report:
        results = {name: [store.load(self.parts(name, seed)).numbers for seed in self.seeds] for name in METHODS}
        tests = {name: [numbers["test"] for numbers in group] for name, group in results.items()}
        rows = tuple(
            (
                name,
                str(results[name][0]["digits"]),
                " ".join(f"{100 * value:.1f}" for value in tests[name]),
                mean_std([100 * value for value in tests[name]], 1),
                mean_std([100 * numbers["validation"] for numbers in results[name]], 1),
            )
            for name in METHODS
        )
        return Report(
            self.TITLE,
            "UDP needs no label to find its points: does training on those of unlabelled digits help?",
            f"{DATA}, {LABELS} labelled digits drawn class by class with the seed, {COPIES} copies of each among the "
            f"unlabelled ones; {NETWORK}; {self.plan}; "
            + "; ".join(f"{name}: {method!r}" for name, method in METHODS.items())
            + f". Seeds {' '.join(map(str, self.seeds))}; radii and weights were chosen on seed 0 by validation "
            "accuracy, among four settings for VAT and four for UDP.",
            verdicts(tests),
            (
                Table(
                    f"Accuracy in percent with {LABELS} labels",
                    ("method", "digits seen", "test, by seed", "test", "validation"),
                    rows,
                    f"{results[STANDARD][0]['n']} test digits, mean and standard deviation of {len(self.seeds)} seeds.",
                ),
            ),
        )


STUDY = SemiSupervised()


def verdicts(tests: Mapping[str, Sequence[float]]) -> tuple[Verdict, ...]:
    """Seeds are pairs: the same labels, first weights and test digits for every method."""

    def more(name: str, other: str) -> Verdict:
        gains = [100 * (group - rival) for group, rival in zip(tests[name], tests[other], strict=True)]
        return Verdict(
            f"{name} with the unlabelled digits is more accurate than {_told(other)}, in the mean over seeds.",
            greater(mean_of(gains), 0.0),
            f"by seed {' '.join(f'{gain:+.1f}' for gain in gains)}, mean {np.mean(gains):+.1f} points",
        )

    return (more(VAT, STANDARD), more(UDP, STANDARD), more(UDP, VAT))


def _told(other: str) -> str:
    return f"standard training on the {LABELS} alone" if other == STANDARD else f"{other} with them"
