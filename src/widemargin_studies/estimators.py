"""UDP with other estimators and measures of uncertainty, which the paper leaves open: margins, calibration, cost."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widemargin.conduct.task import Task, task_of
from widemargin.data.images import ImageSet
from widemargin.data.labelled import Labelled
from widemargin.data.toy import Cloud, PointSet
from widemargin.measure.calibration import (
    UNCERTAINTIES,
    Bins,
    Separation,
    calibration,
    member_logits,
    outside_from_inside,
    wrong_from_right,
)
from widemargin.measure.margin import Margins, margins
from widemargin.measure.robustness import pgd_attack, robust
from widemargin.networks.mlp import Widths
from widemargin.networks.named import LeNetShape
from widemargin.perturb.balls import OPEN, Ball, Linf
from widemargin.perturb.objectives import (
    Objective,
    perturbed_gap,
    perturbed_log_entropy,
    perturbed_log_expected_entropy,
    perturbed_log_mutual_information,
    perturbed_log_variation_ratio,
)
from widemargin.plan import Adam, Cosine, Plan, Updates
from widemargin.recipes import udp
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import Picture as Regions
from widemargin.report.figures import draw_regions, draw_reliability, label_grid, panels
from widemargin.report.store import Arrays, Store, Stored
from widemargin.report.tables import Table, mean_std
from widemargin.run import DeepKernelGP, DropoutDraws, Estimator, Members, OneNetwork, Trial, key_of
from widemargin.train.loop import train
from widemargin.uncertainty.cuts import Cut
from widemargin.uncertainty.dropout import LastDropout
from widemargin.uncertainty.laplace import laplace
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.predictive import log_mean_prob
from widemargin.uncertainty.single import Single
from widemargin.workers import Job, Tick, Workers
from widemargin_studies import fig3, plane

CORRIDOR, SLABS, DIGITS = fig3.CORRIDOR, fig3.SLABS, ImageSet("digits")
PLANE: tuple[PointSet, ...] = (CORRIDOR, SLABS)
MEMBERS = 5
DROPOUT = 0.1
RESOLUTION = 151
"""Of the grid that margins are first looked for on: a cell is at most a sixth of the narrowest gap; then refined."""
ATTACK = pgd_attack(Linf(0.1), 0.0125, 20)

ENTROPY, INFORMATION, EXPECTED, VARIATION, GAP = UNCERTAINTIES
CLIMBED: Mapping[str, Objective] = {
    ENTROPY: perturbed_log_entropy,
    INFORMATION: perturbed_log_mutual_information,
    EXPECTED: perturbed_log_expected_entropy,
    VARIATION: perturbed_log_variation_ratio,
    GAP: -perturbed_gap,
}

SINGLE, LAPLACE = "single", "Laplace"
_LAST = LastDropout()


@dataclass(frozen=True)
class Kind:
    """Who the members are, and what the network needs for it."""

    members: Estimator
    dropout: float = 0.0
    climbs: tuple[str, ...] = tuple(CLIMBED)


KINDS: Mapping[str, Kind] = {
    SINGLE: Kind(OneNetwork()),
    "ensemble": Kind(Members(MEMBERS), climbs=(ENTROPY, INFORMATION, EXPECTED, VARIATION)),
    "dropout": Kind(DropoutDraws(MEMBERS), DROPOUT, (ENTROPY, INFORMATION)),
    "last-layer dropout": Kind(DropoutDraws(MEMBERS, over=_LAST), DROPOUT, (ENTROPY,)),
    "deep kernel": Kind(DeepKernelGP(draws=MEMBERS), climbs=(ENTROPY,)),
}
"""Measures are compared where members are networks; a full cross, mostly deep kernels, takes three times as long."""

Data = PointSet | ImageSet
Row = tuple[str, str]
"""An estimator and the measure that UDP climbed."""
REFERENCE: Row = (SINGLE, ENTROPY)
# Fitted to the reference after its training; whatever UDP might climb of it comes too late.
FITTED: Row = (LAPLACE, ENTROPY)


@dataclass(frozen=True)
class Setting:
    """What is trained on a data set, and how far UDP goes there."""

    ball: Ball
    alpha: float
    steps: int
    plan: Plan
    seeds: tuple[int, ...]


def setting_of(data: Data, updates: int, seeds: tuple[int, ...]) -> Setting:
    """Fewer updates at twice the rate of Fig. 3 and the demonstration, and shorter searches: chosen by seed 7."""
    if isinstance(data, ImageSet):
        return Setting(Linf(0.2), 0.07, 3, Plan(Updates(updates), Adam(4e-3, Cosine()), batch=32), seeds)
    plan = replace(fig3.PLANS[data], length=Updates(updates), descent=Adam(1e-2, Cosine()))
    return Setting(Linf(0.5, OPEN), 0.05, 5, plan, seeds)


@dataclass(frozen=True)
class EstimatorStudy:
    CORE_MINUTES: float
    settings: Mapping[Data, Setting]
    kinds: Mapping[str, Kind]
    TITLE: str = "UDP with other estimators and measures of uncertainty"

    def measures(self, kind: str, data: Data) -> list[str]:
        """Those that differ.  One member has no mutual information, and its expected entropy is its entropy.  Of two
        classes, entropy, variation ratio and gap rise and fall together, so their gradients have the same signs, and
        the steps of an l-infinity search are signs."""
        alone, two_classes = kind == SINGLE, not isinstance(data, ImageSet)
        left_out = [INFORMATION, EXPECTED] * alone + [VARIATION, GAP] * two_classes
        return [measure for measure in self.kinds[kind].climbs if measure not in left_out]

    def rows(self, data: Data) -> list[Row]:
        """Those that are trained on these data."""
        return [(kind, measure) for kind in self.kinds for measure in self.measures(kind, data)]

    def trials(self, data: Data, row: Row) -> list[Trial]:
        kind, setting = self.kinds[row[0]], self.settings[data]
        network = (
            LeNetShape(side=8, dropout=kind.dropout)
            if isinstance(data, ImageSet)
            else Widths(plane.NETWORK.widths, kind.dropout)
        )
        method = udp(setting.ball, setting.alpha, setting.steps, CLIMBED[row[1]])
        return [Trial(data, network, method, setting.plan, seed, members=kind.members) for seed in setting.seeds]

    def run(self, store: Store, workers: Workers) -> None:
        jobs = [
            Job(f"{data_title(data)}, {', '.join(row)}, seed {trial.seed}", _updates(trial), _work, (trial, row, store))
            for data, row, trial in self._all()
            if key(trial, row) not in store
        ]
        workers.do(jobs, "Estimators")

    def missing(self, store: Store) -> int:
        return sum(key(trial, row) not in store for _, row, trial in self._all())

    def _all(self) -> list[tuple[Data, Row, Trial]]:
        return [
            (data, row, trial) for data in self.settings for row in self.rows(data) for trial in self.trials(data, row)
        ]

    def report(self, store: Store) -> Report:
        found = {data: self._found(data, store) for data in self.settings}
        return Report(
            self.TITLE,
            "The paper leaves UDP with other estimators open. Does any estimator, or any measure of uncertainty, beat "
            "the single network with entropy?",
            self._told(),
            verdicts(found),
            (
                self._overview(found),
                *(
                    fig3.margin_table(data, {", ".join(row): _margins(own) for row, own in found[data].items()}, seeds)
                    for data, seeds in ((data, self.settings[data].seeds) for data in PLANE)
                ),
            ),
            (_regions(found), _reliability(found[DIGITS])),
        )

    def _found(self, data: Data, store: Store) -> Found:
        """One for each seed."""
        found: dict[Row, list[Stored]] = {}
        for row in self.rows(data):
            trials = self.trials(data, row)
            found[row] = [store.load(key(trial, row)) for trial in trials]
            if row == REFERENCE:
                found[FITTED] = [store.load(key(trial, FITTED)) for trial in trials]
        return found

    def _overview(self, found: Mapping[Data, Found]) -> Table:
        columns = ("estimator", "UDP climbs", "members", "corridor", "LMS-5", "clean %", "robust %", "ECE", "NLL")
        more = ("wrong: H", "outside: H", "outside: MI", "s, plane", "s, digits")
        lines = []
        for row, own in found[DIGITS].items():
            margin, cost = [], []
            for data in PLANE:
                there = found[data].get(row)
                margin.append("as entropy" if there is None else mean_std([one.numbers["worst"] for one in there]))
                cost += [one.numbers["seconds"] for one in there or ()]
            told = [_mean(own, "clean", 100, 1), _mean(own, "robust", 100, 1), _mean(own, "ece"), _mean(own, "nll")]
            told += [_mean(own, name) for name in ("wrong by entropy", "outside by entropy", "outside by information")]
            seconds = [f"{np.mean(cost):.0f}" if cost else "", _mean(own, "seconds", 1, 0)]
            lines.append((*row, str(own[0].numbers["members"]), *margin, *told, *seconds))
        tests, outside = (found[DIGITS][REFERENCE][0].numbers[name] for name in ("n", "outside"))
        wrong = [one.numbers["wrong"] for own in found[DIGITS].values() for one in own]
        plane_seeds, digit_seeds = (len(self.settings[data].seeds) for data in (CORRIDOR, DIGITS))
        return Table(
            "Margin, accuracy, calibration and cost",
            (*columns, *more),
            tuple(lines),
            f"Corridor, LMS-5: worst margin as a share of the best possible, mean ± std over {plane_seeds} seeds; as "
            f"entropy: of two classes that measure moves points alike. Digits, {digit_seeds} seed, {tests} test "
            "images: robust under PGD with 20 steps at linf 0.1 (which flatters); ECE in 15 bins; AUROC of entropy H "
            f"for wrong against right answers ({min(wrong)} to {max(wrong)} wrong), and of H and mutual information "
            f"MI for {outside} test images turned by a quarter (no zeros) against the test images; CPU seconds of one "
            "training. Laplace is fitted to the single network after training: its cost is that network's.",
        )

    def _told(self) -> str:
        plans = "; ".join(
            f"{data_title(data)}: seeds {', '.join(map(str, own.seeds))}, {own.plan}, UDP {own.ball}, "
            f"alpha {own.alpha:g}, 1..{own.steps} steps"
            for data, own in self.settings.items()
        )
        return (
            f"MLP {plane.NETWORK.widths}, LeNet for 8 x 8 digits; ensembles of {MEMBERS}, {MEMBERS} draws of dropout "
            f"{DROPOUT}, of a deep kernel with {DeepKernelGP().inducing} inducing points and of a Laplace posterior. "
            f"{plans}. Settings were chosen by seed 7 and for time."
        )


STUDY = EstimatorStudy(
    CORE_MINUTES=8.0,
    settings={
        DIGITS: setting_of(DIGITS, 300, (800,)),
        SLABS: setting_of(SLABS, 300, (800, 801)),
        CORRIDOR: setting_of(CORRIDOR, 400, (800, 801)),
    },
    kinds=KINDS,
)


Found = Mapping[Row, Sequence[Stored]]


def key(trial: Trial, row: Row) -> str:
    fitted = (LAPLACE, MEMBERS) if row[0] == LAPLACE else ()
    judged = (ATTACK,) if isinstance(trial.data, ImageSet) else ()
    return key_of("estimators", trial, *fitted, *judged)


def _updates(trial: Trial) -> int:
    assert isinstance(trial.plan.length, Updates)
    return trial.plan.length.count


def data_title(data: Data) -> str:
    return "Digits" if isinstance(data, ImageSet) else fig3.TITLES[data]


def _work(trial: Trial, row: Row, store: Store, tick: Tick) -> None:
    task = task_of(trial)
    seconds = _trained(task, tick)
    if row == REFERENCE:
        assert isinstance(task.network, Single)
        cut = Cut(task.network.encoder, task.network.head)
        # First: a trial counts as done when its own numbers are there.
        _judge(laplace(cut, task.train, MEMBERS), task, seconds, trial, FITTED, store)
    _judge(task.network, task, seconds, trial, row, store)


def _trained(task: Task, tick: Tick) -> float:
    """Train in place; the seconds of one core that it took."""
    # The first updates of a process are slow for reasons that are no estimator's.
    for _ in train(copy.deepcopy(task.network), task.train, task.method, replace(task.plan, length=Updates(2))):
        pass
    start = time.process_time()
    for record in train(task.network, task.train, task.method, task.plan, (task.seed,)):
        if record.update % plane.TICK_EVERY == 0:
            tick(record.update)
    return time.process_time() - start


def _judge(network: Network, task: Task, seconds: float, trial: Trial, row: Row, store: Store) -> None:
    if isinstance(task.train, Cloud):
        numbers, arrays = judged_in_the_plane(network, task.train, drawn=row[1] == ENTROPY)
    else:
        assert isinstance(task.test, Labelled)
        numbers, arrays = judged_on_images(network, task.test)
    store.save(key(trial, row), {"trial": repr(trial), "row": list(row)}, {**numbers, "seconds": seconds}, arrays, {})


def judged_in_the_plane(network: Network, cloud: Cloud, drawn: bool) -> tuple[dict[str, Any], Arrays]:
    found = margins(network, cloud, RESOLUTION)
    picture = plane.picture_arrays(network, cloud) if drawn else {}
    return {"worst": found.worst}, {"margin": found.margin, "best": found.best, **picture}


def judged_on_images(network: Network, tests: Labelled) -> tuple[dict[str, Any], Arrays]:
    calibrated, strangers = calibration(network, tests), turned(tests)
    stands = robust(network, tests, ATTACK)
    log_probs = log_mean_prob(member_logits(network, tests))
    loss = -log_probs.gather(1, tests.labels.unsqueeze(1))[:, 0]
    wrong = int((log_probs.argmax(1) != tests.labels).sum())
    by: dict[str, Separation | None] = {
        "outside by entropy": outside_from_inside(network, tests, strangers),
        "outside by information": None,
        "wrong by entropy": wrong_from_right(network, tests) if 0 < wrong < len(tests) else None,
    }
    if calibrated.members > 1:
        measure = UNCERTAINTIES[INFORMATION]
        by["outside by information"] = outside_from_inside(network, tests, strangers, measure)
    numbers = {
        "n": calibrated.n,
        "members": calibrated.members,
        "outside": len(strangers),
        "wrong": wrong,
        "clean": calibrated.accuracy,
        "robust": float(stands.double().mean()),
        "ece": calibrated.expected_error,
        "nll": calibrated.negative_log_likelihood,
        "brier": calibrated.brier,
        **{name: None if one is None else one.auroc for name, one in by.items()},
    }
    bins = calibrated.bins
    arrays = {"count": bins.count, "confidence": bins.confidence, "accuracy": bins.accuracy}
    return numbers, {**arrays, "stands": stands.double().numpy(), "loss": loss.numpy()}


def turned(tests: Labelled) -> Labelled:
    """Out of distribution: digits turned by a quarter, without the zeros, which still look like zeros."""
    rows: Tensor = (tests.labels != 0).nonzero()[:, 0]
    rest = tests.take(rows)
    return replace(rest, stored=torch.rot90(rest.stored, 1, (2, 3)))


def verdicts(found: Mapping[Data, Found]) -> tuple[Verdict, ...]:
    wider = {data: _wider(found[data]) for data in PLANE}
    both = [row for row in wider[CORRIDOR] if row in wider[SLABS]]
    plane_verdicts = [
        Verdict(
            f"{fig3.TITLES[data]}: some estimator or measure has a worst margin that is wider than that of the single "
            "network with entropy by more than one std of their difference over seeds.",
            bool(wider[data]),
            _counted(wider[data], found[data]),
        )
        for data in PLANE
    ]
    return (
        *plane_verdicts,
        Verdict("The same one does on both sets.", bool(both), _listed(both)),
        *(
            Verdict(
                f"Digits: some estimator or measure has a better {name} by more than one std.",
                bool(better),
                f"{_counted(better, found[DIGITS])}; one seed, std of the paired difference over test images",
            )
            for name, better in (
                ("robust accuracy", _better_on_images(found[DIGITS], "stands", 1)),
                ("likelihood (NLL)", _better_on_images(found[DIGITS], "loss", -1)),
            )
        ),
    )


def _wider(found: Found) -> list[Row]:
    worst = {row: np.array([one.numbers["worst"] for one in own]) for row, own in found.items()}
    reference = worst[REFERENCE]
    return [
        row
        for row, own in worst.items()
        if row != REFERENCE and own.mean() - reference.mean() > float(np.hypot(_std(own), _std(reference)))
    ]


def _better_on_images(found: Found, name: str, sign: int) -> list[Row]:
    """By the mean over test images, seeds one after another; the std is that of a mean of paired differences."""
    values = {row: np.concatenate([one.arrays[name] for one in own]) for row, own in found.items()}
    better = []
    for row, own in values.items():
        difference = sign * (own - values[REFERENCE])
        if row != REFERENCE and difference.mean() > _std(difference) / len(difference) ** 0.5:
            better.append(row)
    return better


def _std(values: NDArray[Any]) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _counted(rows: Sequence[Row], found: Found) -> str:
    return f"{len(rows)} of {len(found) - 1} do: {_listed(rows)}"


def _listed(rows: Iterable[Row]) -> str:
    return "; ".join(", ".join(row) for row in rows) or "none"


def _mean(own: Sequence[Stored], name: str, factor: float = 1, digits: int = 3) -> str:
    values = [factor * one.numbers[name] for one in own if one.numbers[name] is not None]
    return f"{np.mean(values):.{digits}f}" if values else ""


def _margins(own: Sequence[Stored]) -> list[Margins]:
    return [Margins(one.arrays["margin"], one.arrays["best"]) for one in own]


def _shown(found: Found) -> dict[str, Stored]:
    """One network of every estimator: UDP by entropy, the first seed."""
    return {kind: own[0] for (kind, measure), own in found.items() if measure == ENTROPY}


def _regions(found: Mapping[Data, Found]) -> Picture:
    shown = {data: _shown(found[data]) for data in PLANE}
    kinds = list(shown[CORRIDOR])
    figure, axes = panels(len(PLANE), len(kinds), size=2.3)
    for line, data in zip(axes, PLANE, strict=True):
        for panel, kind in zip(line, kinds, strict=True):
            own = shown[data][kind].arrays
            wrong = own["margin"] < 0
            draw_regions(panel, Regions(own["points"], own["labels"], wrong, own["x"], own["y"], own["lead"]))
    label_grid(axes, kinds, [fig3.TITLES[data] for data in PLANE])
    return Picture(
        "regions",
        figure,
        "UDP by entropy, the first seed. Solid: the network's boundary; dashed: the max-margin boundary; red rings: "
        "misclassified training points.",
    )


def _reliability(found: Found) -> Picture:
    shown = _shown(found)
    figure, axes = panels(2, (len(shown) + 1) // 2, size=2.8)
    places = [panel for line in axes for panel in line]
    for panel, (kind, own) in zip(places, shown.items(), strict=False):
        bins = Bins(*(own.arrays[name] for name in ("count", "confidence", "accuracy")))
        draw_reliability(panel, bins)
        panel.set_title(f"{kind}, ECE {bins.expected_error:.3f}", fontsize=10)
    for panel in places[len(shown) :]:
        panel.set_axis_off()
    return Picture(
        "reliability",
        figure,
        f"Digits, UDP by entropy, {int(bins.n)} test images: accuracy over confidence in 15 bins, with how many "
        "answers each holds. On the dashed line a network is as right as it is sure.",
    )
