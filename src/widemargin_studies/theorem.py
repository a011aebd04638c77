"""Sec. 4.2: the theorem's oracle by Monte-Carlo, the discrete Alg. 1, and LDP beyond half the distance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from widemargin.data.toy import TwoGaussians
from widemargin.networks.mlp import MLPSpec
from widemargin.perturb.balls import OPEN, Linf
from widemargin.recipes import pgd, udp
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import COLOURS, TINTS, Array, panels
from widemargin.report.store import Store
from widemargin.report.tables import Table, mean_std
from widemargin.report.verdicts import exactly, in_most_seeds
from widemargin.runs.run import Run
from widemargin.training.loop import train
from widemargin.training.plan import Adam, Plan, Updates
from widemargin.uncertainty.replicas import Replicas
from widemargin.workers import Job, OnProgress, Workers
from widemargin_studies import plane


@dataclass(frozen=True)
class Mixture:
    """Two Gaussians on the line; the best boundary is halfway between their means."""

    low: float
    high: float
    deviation: float = 0.1

    @property
    def best(self) -> float:
        return (self.low + self.high) / 2

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        return rng.normal(self.low, self.deviation, count), rng.normal(self.high, self.deviation, count)


@dataclass(frozen=True)
class Simulation:
    """What is drawn for one seed; its repr is its identity."""

    seed: int
    draws: int = 1_000_000
    mixtures: tuple[Mixture, ...] = (Mixture(-1.0, 1.0), Mixture(-0.5, 2.0, 0.3))
    rates: tuple[float, ...] = (0.1, 0.5, 0.9)
    offsets: tuple[float, ...] = (-0.7, 0.4)
    """Where the boundary starts, seen from the best one."""
    chains: int = 4_000
    updates: int = 80
    reaches: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    """alpha K of Alg. 1."""
    steps: int = 10
    radii: tuple[float, ...] = (0.5, 0.9, 1.05, 1.5, 3.0)

    @property
    def cases(self) -> list[tuple[Mixture, float, float]]:
        return [(m, eta, m.best + off) for m in self.mixtures for eta in self.rates for off in self.offsets]


CHANCE = 4.5
"""Means this many standard errors off are not chance, even the farthest of a thousand."""
DATA, NETWORK = TwoGaussians(seed=1), MLPSpec((1, 2))
PLAN = Plan(Updates(300), Adam(5e-2))
RECIPES = {"LDP-PGD": pgd, "UDP-PGD": udp}
RADII = (0.9, 1.05, 1.5, 3.0)
Case = tuple[str, float]


def shared(points: Array, boundary: Array | float, rng: np.random.Generator) -> Array:
    """eq. (UDP-x): a share of the way to the boundary, drawn uniformly."""
    share = rng.random(points.shape)
    return np.asarray(share * points + (1 - share) * boundary)


def stepped(points: Array, boundary: float, reach: float, steps: int, rng: np.random.Generator) -> Array:
    """Alg. 1 with k ~ U{1..steps} steps of reach / steps that stop at the boundary."""
    length = reach / steps * rng.integers(1, steps + 1, points.shape)
    return np.asarray(points + np.clip(boundary - points, -length, length))


def between(low: Array, high: Array, rng: np.random.Generator) -> Array:
    """eq. (S1, A1): the oracle's answer, uniform between the two points."""
    share = rng.random(low.shape)
    return np.asarray(share * low + (1 - share) * high)


def updated(boundary: Array, mixture: Mixture, rate: float, rng: np.random.Generator) -> Array:
    """eq. (S2): one update of every boundary, each with points of its own."""
    low, high = (shared(points, boundary, rng) for points in mixture.draw(len(boundary), rng))
    return np.asarray(boundary + rate * (between(low, high, rng) - boundary))


def expected(boundary: float, mixture: Mixture, rate: float, updates: int = 1) -> float:
    """The theorem: (1 - eta/2)^n of the way off the best boundary is left."""
    return mixture.best + (1 - rate / 2) ** updates * (boundary - mixture.best)


def in_errors(values: Array, target: float) -> float:
    """How far the mean is from the target, in standard errors."""
    return float((values.mean() - target) / (values.std(ddof=1) / len(values) ** 0.5))


def simulate(simulation: Simulation, store: Store, on_progress: OnProgress) -> None:
    rng = np.random.default_rng(simulation.seed)
    mixture, gaps = simulation.mixtures[0], []
    for done, (of_case, rate, boundary) in enumerate(simulation.cases, 1):
        after = updated(np.full(simulation.draws, boundary), of_case, rate, rng)
        gaps.append(in_errors(after, expected(boundary, of_case, rate)))
        on_progress(done)
    low, high = mixture.draw(simulation.draws, rng)
    arrays = {
        "gaps": np.array(gaps),
        "pulls": np.array([_pull(simulation, reach, rng) for reach in simulation.reaches]),
        "oracle": np.array([_loss_driven(low + radius, high - radius, mixture, rng) for radius in simulation.radii]),
        **_trajectories(simulation, mixture, rng),
    }
    store.save((simulation,), {}, arrays, {})


def _trajectories(simulation: Simulation, mixture: Mixture, rng: np.random.Generator) -> dict[str, Array]:
    """For every rate and update: mean, deviation and the middle 95 % of many chains."""
    paths = np.empty((len(simulation.rates), simulation.updates + 1, simulation.chains))
    paths[:, 0] = mixture.best + simulation.offsets[0]
    for path, rate in zip(paths, simulation.rates, strict=True):
        for n in range(simulation.updates):
            path[n + 1] = updated(path[n], mixture, rate, rng)
    band = np.quantile(paths, (0.025, 0.975), axis=2)
    return {"mean": paths.mean(2), "deviation": paths.std(2, ddof=1), "band": band}


def _pull(simulation: Simulation, reach: float, rng: np.random.Generator) -> float:
    """The share of its way to the best boundary that the oracle's answer goes on average; the theorem's is 1/2."""
    mixture, offset = simulation.mixtures[0], simulation.offsets[0]
    points = mixture.draw(simulation.draws, rng)
    low, high = (stepped(side, mixture.best + offset, reach, simulation.steps, rng) for side in points)
    return 1 - float(between(low, high, rng).mean() - mixture.best) / offset


def _loss_driven(low: Array, high: Array, mixture: Mixture, rng: np.random.Generator) -> tuple[float, float]:
    """The oracle on LDP points: its mean less the best boundary, in standard errors; the share of pairs flipped."""
    return in_errors(between(low, high, rng), mixture.best), float((low > high).mean())


def train_group(runs: Sequence[Run], store: Store, on_progress: OnProgress) -> None:
    """Final accuracy, clean loss and slope of each network, and its mean accuracy over the second half of training."""
    first, count = runs[0], len(runs)
    cloud, replicas = plane.points_of(first), Replicas([plane.mlp_of(run) for run in runs])
    everything, seeds = cloud.repeat(count), tuple(run.seed for run in runs)
    course = []
    for record in train(replicas, everything, first.method, first.plan, seeds):
        if 2 * record.update > plane.updates(first):
            with torch.no_grad():
                answers = replicas(everything.points)
            course.append((answers.argmax(-1) == everything.labels).view(count, -1).float().mean(1).numpy())
        on_progress(record.update)
    losses = -answers.gather(1, everything.labels[:, None]).view(count, -1).mean(1)
    slopes = (replicas.stack.weights[0][:, 0, 1] - replicas.stack.weights[0][:, 0, 0]).tolist()
    for i, run in enumerate(runs):
        numbers = {"accuracy": float(course[-1][i]), "loss": float(losses[i]), "slope": slopes[i]}
        numbers["course"] = float(np.mean(course, 0)[i])
        store.save((run,), numbers, {"course": np.stack(course)[:, i]}, {})


@dataclass(frozen=True)
class Theorem:
    TITLE: str = "Sec. 4.2: the theorem, and LDP beyond half the distance"
    CORE_MINUTES: float = 1.0
    simulations: tuple[Simulation, ...] = tuple(Simulation(seed) for seed in range(700, 705))
    """They differ by seed alone."""
    seeds: Sequence[int] = range(700, 710)
    """Of the trained networks."""
    data: TwoGaussians = DATA
    plan: Plan = PLAN

    @property
    def runs(self) -> Mapping[Case, Sequence[Run]]:
        return {
            (name, radius): [
                Run(self.data, NETWORK, recipe(Linf(radius, OPEN), radius / 10, 10), self.plan, seed)
                for seed in self.seeds
            ]
            for name, recipe in RECIPES.items()
            for radius in RADII
        }

    def run(self, store: Store, workers: Workers) -> None:
        jobs = [
            Job(f"oracle, seed {simulation.seed}", len(simulation.cases), simulate, (simulation, store))
            for simulation in self.simulations
            if (simulation,) not in store
        ]
        for (name, radius), runs in self.runs.items():
            todo = [one_run for one_run in runs if (one_run,) not in store]
            if todo:
                jobs.append(Job(f"{name}, eps {radius}", plane.updates(todo[0]), train_group, (todo, store)))
        workers.do(jobs, "Theorem")

    def missing(self, store: Store) -> int:
        every = [*self.simulations, *(one_run for runs in self.runs.values() for one_run in runs)]
        return sum((one,) not in store for one in every)

    def report(self, store: Store) -> Report:
        one, arrays = self.simulations[0], [store.load((simulation,)).arrays for simulation in self.simulations]
        drawn = {name: np.stack([group[name] for group in arrays]) for name in arrays[0]}
        numbers = {case: [store.load((group,)).numbers for group in runs] for case, runs in self.runs.items()}
        trained = {case: {name: [group[name] for group in runs] for name in runs[0]} for case, runs in numbers.items()}
        return Report(
            self.TITLE,
            "Does UDP pull the boundary to the middle as the theorem says, and where does LDP fail?",
            f"Oracle: seeds {self.simulations[0].seed}..{self.simulations[-1].seed}, {one.draws} draws each, "
            f"{one.chains} chains. Training: {self.data}, logistic regression, {self.plan}, 10 steps of eps/10 (UDP "
            f"draws 1..10), seeds {self.seeds[0]}..{self.seeds[-1]}. That accuracy is judged over the second half of a "
            "training at a constant rate was settled on other seeds, after two forms that did not show LDP's failure: "
            "with a rate that decays to 0 it ended at 1.00 up to eps 1.5, its slope near 0; and the clean loss did not "
            "separate the radii.",
            verdicts(one, drawn, trained),
            tables(one, drawn, trained),
            (trajectories(one, drawn), accuracies(trained)),
        )


STUDY = Theorem()


Drawn = Mapping[str, Array]
"""Arrays of all simulations, stacked."""
Trained = Mapping[Case, Mapping[str, Sequence[float]]]
"""Numbers of all seeds."""


def tables(one: Simulation, drawn: Drawn, trained: Trained) -> tuple[Table, ...]:
    recursion = [
        (f"{m.low:g}, {m.high:g}", f"{rate:g}", f"{w:g}", f"{expected(w, m, rate):.3f}", _signed(drawn["gaps"][:, i]))
        for i, (m, rate, w) in enumerate(one.cases)
    ]
    pulls = [(f"{reach:g}", mean_std(list(drawn["pulls"][:, i]), 3)) for i, reach in enumerate(one.reaches)]
    oracle = [
        (f"{radius:g}", _signed(drawn["oracle"][:, i, 0]), f"{100 * drawn['oracle'][:, i, 1].mean():.1f}")
        for i, radius in enumerate(one.radii)
    ]
    fits = [
        (f"{name}, eps {radius:g}", *(mean_std(group[column]) for column in ("accuracy", "course", "loss", "slope")))
        for (name, radius), group in trained.items()
    ]
    sizes = f"K = {one.steps}, means -1 and 1, w - w* = {one.offsets[0]}; for many steps it is 1 / (alpha K) from 2 on."
    each = f"One number for each of {len(drawn['gaps'])} seeds."
    return (
        Table("One update of UDP", ("means", "eta", "w", "mean of w'", "off by, std errors"), tuple(recursion), each),
        Table("Pull of the discrete Alg. 1 (theorem: 0.5)", ("alpha K", "pull"), tuple(pulls), sizes),
        Table("LDP under the same oracle", ("eps", "off w* by, std errors", "pairs flipped %"), tuple(oracle), each),
        Table(
            "Logistic regression",
            ("method", "accuracy", "while training", "clean loss", "slope"),
            tuple(fits),
            f"Train accuracy at the end and over the second half, and cross-entropy at the clean points (not knowing: "
            f"0.69); mean ± std over {_seeds_of(trained)} seeds.",
        ),
    )


def _seeds_of(trained: Trained) -> int:
    """How many."""
    return len(next(iter(trained.values()))["accuracy"])


def _signed(values: Array) -> str:
    return " ".join(f"{value:+.1f}" for value in values)


def off_decay(one: Simulation, drawn: Drawn) -> float:
    """The largest distance of the chains' mean from the theorem's decay, in standard errors."""
    error = drawn["deviation"][..., 1:] / one.chains**0.5
    theory = np.array([decayed(one, rate) for rate in one.rates])
    return float(np.abs((drawn["mean"] - theory)[..., 1:] / error).max())


def decayed(simulation: Simulation, rate: float) -> list[float]:
    mixture, start = simulation.mixtures[0], simulation.mixtures[0].best + simulation.offsets[0]
    return [expected(start, mixture, rate, n) for n in range(simulation.updates + 1)]


def verdicts(one: Simulation, drawn: Drawn, trained: Trained) -> tuple[Verdict, ...]:
    gaps, off = drawn["gaps"], np.abs(drawn["oracle"][..., 0]).max()
    pulls, flipped, left = (x.mean(0) for x in (drawn["pulls"], drawn["oracle"][..., 1], drawn["deviation"][..., -1]))
    course = {case: group["course"] for case, group in trained.items()}
    return (
        Verdict(
            "On average w' = (1 - eta/2) w + (eta/2) w*.",
            exactly(bool(np.abs(gaps).max() < CHANCE)),
            f"{gaps.size} means of {one.draws} draws: at most {np.abs(gaps).max():.1f} standard errors off, "
            f"{np.sqrt((gaps**2).mean()):.2f} root mean square",
        ),
        Verdict(
            "Over many updates the mean decays as (1 - eta/2)^n.",
            exactly(off_decay(one, drawn) < CHANCE),
            f"at most {off_decay(one, drawn):.1f} standard errors off, over {one.updates} updates",
        ),
        Verdict(
            "The boundary itself converges to the best one (App. B's wording; fixed eta).",
            exactly(bool(left.max() < 0.01)),
            "only its mean does: single chains keep a standard deviation of " + _at("eta", one.rates, left),
        ),
        Verdict(
            "The discrete Alg. 1 pulls towards w* as well.",
            in_most_seeds([bool(group.min() > 0 and np.diff(group).max() < 0) for group in drawn["pulls"]]),
            "the less the longer its steps: " + _at("alpha K", one.reaches, pulls),
        ),
        Verdict(
            "Under the theorem's own oracle, LDP loses w* for eps > half the distance.",
            exactly(bool(off > CHANCE)),
            f"by symmetry its mean stays w* (at most {off:.1f} standard errors off); what breaks is the order of the "
            "labels, flipped in shares of " + _at("eps", one.radii, flipped),
        ),
        Verdict(
            "Trained with eps > half the distance, LDP does not converge: its accuracy keeps leaving 1, in every seed.",
            in_most_seeds(
                [
                    all((reached < 1) == (radius > 1) for radius, reached in zip(RADII, seed, strict=True))
                    for seed in zip(*(course["LDP-PGD", radius] for radius in RADII), strict=True)
                ]
            ),
            "mean over the second half of training: " + _by_radius(trained, "LDP-PGD", "course"),
        ),
        Verdict(
            "It can end with an accuracy of 0.",
            exactly(min(min(trained["LDP-PGD", radius]["accuracy"]) for radius in RADII) == 0),
            "at the end: " + _by_radius(trained, "LDP-PGD", "accuracy"),
        ),
        Verdict(
            "UDP classifies every point, at every eps, at the end and before.",
            in_most_seeds(
                [min(seed) == 1 for seed in zip(*(course["UDP-PGD", radius] for radius in RADII), strict=True)]
            ),
            "mean over the second half of training: " + _by_radius(trained, "UDP-PGD", "course"),
        ),
    )


def _at(name: str, places: Sequence[float], values: Array) -> str:
    return ", ".join(f"{value:.2f} at {name} {place:g}" for value, place in zip(values, places, strict=True))


def _by_radius(trained: Trained, name: str, column: str) -> str:
    results = [(radius, trained[name, radius][column]) for radius in RADII]
    return ", ".join(
        f"{np.mean(group):.2f} ({min(group):.2f} to {max(group):.2f}) at eps {radius:g}" for radius, group in results
    )


def trajectories(one: Simulation, drawn: Drawn) -> Picture:
    figure, (axes,) = panels(1, len(one.rates), size=3.4)
    n = np.arange(one.updates + 1)
    for i, (panel, rate) in enumerate(zip(axes, one.rates, strict=True)):
        panel.fill_between(n, *drawn["band"][0, :, i], color=TINTS[0], label="95 % of chains")
        mean, sure = drawn["mean"][0, i], 1.96 * drawn["deviation"][0, i] / one.chains**0.5
        panel.fill_between(n, mean - sure, mean + sure, color=COLOURS[0], label="their mean, 95 % confidence")
        panel.plot(n, decayed(one, rate), color="#111111", linestyle="dashed", linewidth=1.2, label="(1 - eta/2)^n")
        panel.set(title=f"eta = {rate:g}", xlabel="update n", ylim=(-1.05, 1.05))
    axes[0].set_ylabel("boundary w  (best: 0)")
    axes[0].legend(loc="upper right", fontsize=8)
    caption = f"UDP under the theorem's oracle, means -1 and 1: {one.chains} chains, seed {one.seed}."
    return Picture("theorem-trajectories", figure, caption)


def accuracies(trained: Trained) -> Picture:
    figure, (axes,) = panels(1, 2, size=3.6)
    for panel, column in zip(axes, ("course", "accuracy"), strict=True):
        for name, colour, shift in (("LDP-PGD", COLOURS[1], -0.05), ("UDP-PGD", COLOURS[0], 0.05)):
            values = [trained[name, radius][column] for radius in RADII]
            places = np.arange(len(RADII)) + shift
            panel.plot(places, np.mean(values, 1), color=colour, label=name)
            panel.scatter(
                places.repeat(_seeds_of(trained)), np.ravel(values), color=colour, s=16, alpha=0.6, linewidths=0
            )
        panel.set(xlabel="eps  (half the distance of the means: 1)", ylim=(-0.05, 1.08))
        panel.set_xticks(range(len(RADII)), [f"{radius:g}" for radius in RADII])
    axes[0].set(title="over the second half of training", ylabel="train accuracy")
    axes[1].set_title("after the last update")
    axes[0].legend(loc="lower left", fontsize=9)
    return Picture(
        "theorem-accuracy", figure, f"Logistic regression; dots: {_seeds_of(trained)} seeds, lines: their mean."
    )
