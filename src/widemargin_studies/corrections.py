"""What do our corrections of the published search change?  The entropy's form, the mode, TRADES' first step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import torch
from torch import Generator, nn

from widemargin.data.dataset import Dataset
from widemargin.data.images import ImageSet
from widemargin.data.toy import LMS5, NarrowCorridor, PointSet
from widemargin.measure.accuracy import accuracy
from widemargin.measure.robustness import robust_accuracy
from widemargin.method import Method, as_published, climbing_entropy, in_train_mode
from widemargin.networks.named import LeNetSpec, drawn
from widemargin.perturb.balls import OPEN, Linf
from widemargin.perturb.pgd import pgd_search
from widemargin.perturb.search import Search
from widemargin.recipes import pgd, standard, trades, trades_cross_entropy, trades_random_start, udp
from widemargin.report.document import Report, Verdict
from widemargin.report.store import Parts, Store
from widemargin.report.tables import Table, mean_std
from widemargin.report.verdicts import Estimate, Outcome, greater, mean_of
from widemargin.rng import Rng
from widemargin.runs.run import Run
from widemargin.training.loop import train
from widemargin.training.plan import Adam, Cosine, Epochs, Plan, Updates
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single
from widemargin.workers import Job, OnProgress, Workers
from widemargin_studies import plane


@dataclass(frozen=True)
class NormedSpec:
    """Two convolutions with batch-norm, for 8 x 8 images."""

    filters: int = 16

    def build(self, rng: Generator) -> nn.Module:
        return drawn(self._layers, rng)

    def _layers(self) -> nn.Module:
        width = self.filters
        return nn.Sequential(
            *(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(2 * width * 16, 10)),
        )


@dataclass(frozen=True)
class Comparison:
    """One search as corrected here, and as published; all else is the same."""

    name: str
    ours: Method
    theirs: Method


DATA = ImageSet("digits")
LENET, NORMED = LeNetSpec(side=8), NormedSpec()
PLAN = Plan(Epochs(15), Adam(5e-3, Cosine()), batch=100)
BALL, ALPHA, STEPS = Linf(0.2), 0.04, 5
ATTACK = pgd_search(Linf(0.1), alpha=0.01, steps=20)
_UDP, _TRADES = udp(BALL, ALPHA, STEPS), trades(BALL, ALPHA, STEPS, weight=1.0)
_RANDOM = trades_random_start(BALL, ALPHA, STEPS, weight=1.0)
ENTROPY, MODE, START, FORM, ALL = (
    "log-entropy, not entropy",
    "search in eval mode",
    "TRADES' first step, not a random start",
    "TRADES of ours, not the paper's",
    "all of them",
)
IMAGES: Mapping[LeNetSpec | NormedSpec, Sequence[Comparison]] = {
    LENET: (
        Comparison(f"UDP: {ENTROPY}", _UDP, climbing_entropy(_UDP)),
        Comparison(START, _TRADES, _RANDOM),
        Comparison(FORM, _TRADES, trades_cross_entropy(BALL, ALPHA, STEPS, weight=1.0)),
    ),
    NORMED: (
        Comparison(f"UDP: {MODE}", _UDP, in_train_mode(_UDP)),
        Comparison(f"PGD: {MODE}", pgd(BALL, ALPHA, STEPS), in_train_mode(pgd(BALL, ALPHA, STEPS))),
        Comparison(f"UDP: {ALL}", _UDP, as_published(_UDP)),
    ),
}
_WIDE = udp(Linf(0.5, OPEN), alpha=0.05, steps=10)
_NARROW = Linf(0.25, OPEN)
_KL = trades(_NARROW, alpha=0.05, steps=10, weight=6.0)
PLANE: Mapping[PointSet, Sequence[Comparison]] = {
    NarrowCorridor(): (
        Comparison(f"UDP: {ENTROPY}", _WIDE, climbing_entropy(_WIDE)),
        Comparison(START, _KL, trades_random_start(_NARROW, alpha=0.05, steps=10, weight=6.0)),
        Comparison(FORM, _KL, trades_cross_entropy(_NARROW, alpha=0.05, steps=10, weight=1.0)),
    ),
    LMS5(seed=1): (Comparison(f"UDP: {ENTROPY}", _WIDE, climbing_entropy(_WIDE)),),
}
SEARCHES: Mapping[str, Method] = {
    "ours": trades(Linf(0.3), alpha=0.015, steps=20, weight=1.0),
    "random start": trades_random_start(Linf(0.3), alpha=0.015, steps=20, weight=1.0),
    "as published": trades_cross_entropy(Linf(0.3), alpha=0.015, steps=20, weight=1.0),
}
"""How many test digits does the search of each TRADES take to another class, on a LeNet of standard training?"""
PLANS: Mapping[type[PointSet], Plan] = {
    NarrowCorridor: replace(plane.FULL_BATCH, length=Updates(1_200)),
    LMS5: replace(plane.BATCHES_OF_100, length=Updates(1_200)),
}
TITLES = {LENET: "LeNet, digits", NORMED: "batch-norm, digits", NarrowCorridor(): "corridor", LMS5(seed=1): "LMS-5"}


@dataclass(frozen=True)
class Corrections:
    TITLE: str = "What our corrections of the published search change"
    CORE_MINUTES: float = 7.0
    seeds: Sequence[int] = range(700, 705)
    images: Mapping[LeNetSpec | NormedSpec, Sequence[Comparison]] = field(default_factory=lambda: IMAGES)
    plan: Plan = PLAN
    """On images."""
    attack: Search = ATTACK
    points: Mapping[PointSet, Sequence[Comparison]] = field(default_factory=lambda: PLANE)
    plans: Mapping[type[PointSet], Plan] = field(default_factory=lambda: PLANS)
    """On points."""
    grids: plane.Grids = plane.GRIDS

    def parts(self, network: LeNetSpec | NormedSpec, method: Method, seed: int) -> Parts:
        return ("corrections", DATA, network, method, self.plan, self.attack, seed)

    def fooled_parts(self, seed: int) -> Parts:
        return ("corrections, misclassified", DATA, LENET, self.plan, SEARCHES, seed)

    def image_cells(self) -> dict[Parts, tuple[LeNetSpec | NormedSpec, Method, int]]:
        """By its parts: a method that is compared twice is trained once."""
        return {
            self.parts(network, method, seed): (network, method, seed)
            for network, comparisons in self.images.items()
            for compared in comparisons
            for method in (compared.ours, compared.theirs)
            for seed in self.seeds
        }

    def plane_runs(self, data: PointSet, method: Method) -> list[Run]:
        return plane.runs_of(data, method, self.plans[type(data)], self.seeds)

    def all_plane_runs(self) -> list[Run]:
        methods = {
            (data, method): self.plane_runs(data, method)
            for data, comparisons in self.points.items()
            for compared in comparisons
            for method in (compared.ours, compared.theirs)
        }
        return list(chain.from_iterable(methods.values()))

    def run(self, store: Store, workers: Workers) -> None:
        todo = [(parts, cell) for parts, cell in self.image_cells().items() if parts not in store]
        jobs = [
            Job(
                f"{TITLES[network]}, seed {seed}",
                self.plan.updates(DATA.published_rows),
                self._fit,
                (network, method, seed, store),
            )
            for _, (network, method, seed) in todo
        ]
        jobs += [
            Job(f"TRADES' searches, seed {seed}", self.plan.updates(DATA.published_rows), self._fool, (seed, store))
            for seed in self.seeds
            if self.fooled_parts(seed) not in store
        ]
        names = {group.method: "with and without corrections" for group in self.all_plane_runs()}
        workers.do(jobs + plane.jobs(self.all_plane_runs(), names, store, self.grids), self.TITLE)

    def missing(self, store: Store) -> int:
        every = [*self.image_cells(), *map(self.fooled_parts, self.seeds)]
        return sum(parts not in store for parts in every) + plane.missing(self.all_plane_runs(), store)

    def _trained(
        self, network: LeNetSpec | NormedSpec, method: Method, seed: int, train_on: Dataset, on_progress: OnProgress
    ) -> Single:
        model = Single(at_input(network.build(Rng.seeded(seed, purpose="weights").generators[0])))
        for record in train(model, train_on, method, self.plan, (seed,)):
            on_progress(record.update)
        return model.eval()

    def _fool(self, seed: int, store: Store, on_progress: OnProgress) -> None:
        splits = DATA.draw()
        model = self._trained(LENET, standard(), seed, splits.train, on_progress)
        images, labels = splits.test[torch.arange(len(splits.test))]
        numbers: dict[str, int] = {"n": len(labels)}
        for name, method in SEARCHES.items():
            delta = method.perturb(model, images, labels, Rng.seeded(seed)).delta
            with torch.no_grad():
                numbers[name] = int((model(images + delta).argmax(-1) != labels).sum())
        store.save(self.fooled_parts(seed), numbers, {}, {})

    def _fit(
        self, network: LeNetSpec | NormedSpec, method: Method, seed: int, store: Store, on_progress: OnProgress
    ) -> None:
        splits = DATA.draw()
        model = self._trained(network, method, seed, splits.train, on_progress)
        numbers = {
            "clean": accuracy(model, splits.test),
            "robust": robust_accuracy(model, splits.test, self.attack),
            "n": len(splits.test),
        }
        store.save(self.parts(network, method, seed), numbers, {}, {})

    def changes(self, store: Store) -> list[Change]:
        results = []
        for network, comparisons in self.images.items():
            for compared in comparisons:
                for name in ("clean", "robust"):
                    ours, theirs = (
                        [100 * store.load(self.parts(network, method, seed)).numbers[name] for seed in self.seeds]
                        for method in (compared.ours, compared.theirs)
                    )
                    results.append(Change(TITLES[network], compared.name, f"{name} accuracy", "points", ours, theirs))
        for data, pairs in self.points.items():
            for compared in pairs:
                ours, theirs = (
                    [plane.measured(group, store).worst_fraction for group in self.plane_runs(data, method)]
                    for method in (compared.ours, compared.theirs)
                )
                results.append(Change(TITLES[data], compared.name, "worst margin", "of the best", ours, theirs))
        return results

    def _searched(self, store: Store) -> list[Change]:
        numbers = [store.load(self.fooled_parts(seed)).numbers for seed in self.seeds]
        shares = {name: [100 * group[name] / group["n"] for group in numbers] for name in SEARCHES}
        return [
            Change("LeNet, digits", name, "share that its search takes across", "points", shares["ours"], shares[other])
            for name, other in ((START, "random start"), (FORM, "as published"))
        ]

    def report(self, store: Store) -> Report:
        results, searched = self.changes(store), self._searched(store)
        rows = tuple(
            (
                change.where,
                change.name,
                change.measure,
                mean_std(list(change.ours), _digits(change)),
                mean_std(list(change.theirs), _digits(change)),
                str(change.difference),
            )
            for change in (*searched, *results)
        )
        tests = store.load(next(iter(self.image_cells()))).numbers["n"]
        return Report(
            self.TITLE,
            "The published code searches in train mode, climbs the entropy rather than its log, and starts TRADES "
            "where its gradient is the rounding of 1e-8. Does it matter for what is trained?",
            f"Seeds {self.seeds[0]}..{self.seeds[-1]}. Digits: {self.plan}; {BALL}, step {ALPHA}, {STEPS} steps; "
            f"robust accuracy under PGD, {self.attack.ascent.steps.most} steps in {self.attack.ball}, on {tests} test "
            "digits; searches alone: 20 steps of .015 in Linf .3, LeNets of standard training. Corridor: "
            f"{self.plans[NarrowCorridor]}; LMS-5: {self.plans[LMS5]}; UDP with eps .5, TRADES with eps .25, both step "
            ".05 and 10 steps, weight 6 (KL) or 1 (the paper's cross-entropy).",
            (*map(_verdict, searched), *map(_verdict, results)),
            (
                Table(
                    "Corrected and as published",
                    ("trained on", "correction", "measure", "corrected", "as published", "difference"),
                    rows,
                    f"Mean ± std over {len(self.seeds)} seeds; the difference between the same seeds with its 95 % "
                    "bounds.",
                ),
            ),
        )


STUDY = Corrections()


@dataclass(frozen=True)
class Change:
    """What a correction makes of one measure: seeds are pairs, with the same first weights and batches."""

    where: str
    name: str
    measure: str
    unit: str
    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def difference(self) -> Estimate:
        return mean_of([ours - theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)])

    @property
    def outcome(self) -> Outcome:
        return greater(self.difference, 0.0)


def _verdict(change: Change) -> Verdict:
    return Verdict(
        f"{change.where}; {change.name}: a higher {change.measure}.",
        change.outcome,
        f"{change.difference} {change.unit}",
    )


def _digits(change: Change) -> int:
    return 1 if change.unit == "points" else 2
