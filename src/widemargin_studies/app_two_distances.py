"""App. D.2: two distances.  Attacks on a fixed network, boundaries after training, and how much they oscillate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch

from widemargin.data.toy import TwoDistances
from widemargin.measure.boundary import Array, Window, lead, log_probs
from widemargin.method import Method
from widemargin.perturb.ascent import Ascent, Fixed, Steepest
from widemargin.perturb.balls import OPEN, Linf
from widemargin.perturb.objectives import Objective, perturbed_log_entropy, perturbed_loss
from widemargin.perturb.search import Search
from widemargin.recipes import pgd, standard, trades, trades_cross_entropy, udp, udpr
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import PROBABILITY, bare, draw_landscape, draw_points, draw_regions, panels
from widemargin.report.store import Parts, Store
from widemargin.report.tables import Table, mean_std
from widemargin.report.verdicts import Outcome, greater, in_most_seeds, mean_of
from widemargin.rng import Rng
from widemargin.runs.run import Run
from widemargin.training.loop import train
from widemargin.training.plan import Adam, Plan, Updates
from widemargin.uncertainty import predictive
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.ensemble import Ensemble
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.replicas import Replicas
from widemargin.uncertainty.single import Single
from widemargin.workers import Job, OnProgress, Workers
from widemargin_studies import plane

DATA = TwoDistances(seed=0)
BALL = Linf(0.6, OPEN)
ALPHA, STEPS = 0.05, 15
ATTACK_STEPS = (1, 20)
ATTACK_ALPHA = 0.05
ATTACKS: Mapping[str, Objective] = {"LDP-PGD": perturbed_loss, "UDP-PGD": perturbed_log_entropy}
METHODS: Mapping[str, Method] = {
    "standard": standard(),
    "LDP-PGD": pgd(BALL, ALPHA, STEPS),
    "TRADES": trades(BALL, ALPHA, STEPS, weight=6.0),
    "TRADES, the paper's": trades_cross_entropy(BALL, ALPHA, STEPS, weight=1.0),
    "UDP-PGD": udp(BALL, ALPHA, STEPS),
    "UDPR": udpr(BALL, ALPHA, STEPS, weight=1.0),
}
# A constant rate and small batches: what is watched is how the boundary moves, not where it comes to rest.
OSCILLATING = Plan(Updates(1_500), Adam(5e-3), batch=20)
SETTLED, OFTEN, GRID = 500, 10, 60


@dataclass(frozen=True)
class TwoDistancesStudy:
    TITLE: str = "App. D.2: two distances, attacks, boundaries and oscillations"
    CORE_MINUTES: float = 11.0
    seeds: Sequence[int] = range(300, 305)
    members: int = 10
    """Of an ensemble."""
    plan: Plan = plane.FULL_BATCH
    oscillating: Plan = OSCILLATING
    grids: plane.Grids = plane.GRIDS

    def _attack_parts(self, seed: int) -> Parts:
        decided = (DATA, plane.NETWORK, self.plan, self.members, ATTACK_STEPS, ATTACK_ALPHA, seed)
        return ("two distances, attack", *decided)

    def _flips_parts(self, name: str) -> Parts:
        return (
            "two distances, flips",
            DATA,
            plane.NETWORK,
            METHODS[name],
            self.oscillating,
            self.seeds,
            SETTLED,
            OFTEN,
            GRID,
        )

    def cells(self) -> dict[str, list[Run]]:
        return {name: plane.runs_of(DATA, method, self.plan, self.seeds) for name, method in METHODS.items()}

    def run(self, store: Store, workers: Workers) -> None:
        names = {method: name for name, method in METHODS.items()}
        workers.do(plane.jobs(list(chain(*self.cells().values())), names, store, self.grids), "After training")
        attacks = [
            Job(f"ensemble {seed}", plane.updates(self.cells()["standard"][0]), self._attack, (seed, store))
            for seed in self.seeds
            if self._attack_parts(seed) not in store
        ]
        flips = [
            Job(f"{name}, oscillation", self.oscillating.updates(len(DATA.draw())), self._count_flips, (name, store))
            for name in METHODS
            if self._flips_parts(name) not in store
        ]
        workers.do([*attacks, *flips], "Fixed networks and oscillations")

    def missing(self, store: Store) -> int:
        every = [*map(self._attack_parts, self.seeds), *map(self._flips_parts, METHODS)]
        return plane.missing(list(chain(*self.cells().values())), store) + sum(parts not in store for parts in every)

    def _attack(self, seed: int, store: Store, on_progress: OnProgress) -> None:
        """Train ten members on clean points; move the points by each attack, on one member and on all ten."""
        seeds = range(1000 * seed, 1000 * seed + self.members)
        members = plane.trained(plane.runs_of(DATA, standard(), self.plan, seeds), on_progress)[0].stack.split()
        single, ensemble = Single(at_input(members[0])), Ensemble(members)
        cloud, window = DATA.draw(), Window.around(DATA.draw(), pad=0.5)
        x, y = window.grid(self.grids.picture)
        grid = window.points(self.grids.picture)
        arrays = {
            "points": cloud.points.numpy(),
            "labels": cloud.labels.numpy(),
            "x": x,
            "y": y,
            "lead": lead(log_probs(single, grid), 1).reshape(len(y), len(x)),
            "ensemble lead": lead(log_probs(ensemble, grid), 1).reshape(len(y), len(x)),
            "ensemble entropy": _entropy(ensemble, grid).reshape(len(y), len(x)),
        }
        numbers = {}
        for kind, network in {"single": single, "ensemble": ensemble}.items():
            for name, objective in ATTACKS.items():
                for steps in ATTACK_STEPS:
                    search = Search(objective, Linf(100.0, OPEN), Ascent(Fixed(steps), Steepest(ATTACK_ALPHA)))
                    moved = cloud.points + search(network, cloud.points, cloud.labels, Rng.seeded(seed)).delta
                    group = lead(log_probs(network, moved.double().numpy()), 1) * (2 * cloud.labels.numpy() - 1)
                    arrays[f"{kind} {name} {steps}"] = moved.numpy()
                    numbers[f"{kind} {name} {steps}"] = {
                        "crossed": float((group < 0).mean()),
                        "beyond a step": float(_beyond(network, cloud.points, moved, cloud.labels.numpy())),
                    }
        store.save(self._attack_parts(seed), numbers, arrays, {})

    def _count_flips(self, name: str, store: Store, on_progress: OnProgress) -> None:
        """After every update, who on a grid has changed its mind?"""
        runs = plane.runs_of(DATA, METHODS[name], self.oscillating, self.seeds)
        cloud = DATA.draw()
        window = Window.around(cloud, pad=0.5)
        grid = torch.as_tensor(window.points(GRID), dtype=torch.float32)
        network = Replicas([plane.mlp_of(run) for run in runs])
        everything = cloud.repeat(len(runs))
        flips = late = torch.zeros(len(runs) * len(grid))
        before: torch.Tensor | None = None
        for record in train(network, everything, METHODS[name], self.oscillating, tuple(self.seeds)):
            with torch.no_grad():
                now = network(grid.repeat(len(runs), 1)).argmax(1)
            if before is not None:
                changed = (now != before).float()
                flips, late = flips + changed, late + changed * (record.update > SETTLED)
            before = now
            if record.update % plane.TICK_EVERY == 0:
                on_progress(record.update)
        with torch.no_grad():
            wrong = (network(everything.points).argmax(1) != everything.labels).view(len(runs), -1).sum(1)
        by_seed, late_by_seed = flips.view(len(runs), -1), late.view(len(runs), -1)
        numbers = {
            "flips": by_seed.mean(1).tolist(),
            "often": (late_by_seed >= OFTEN).float().mean(1).tolist(),
            "errors": wrong.tolist(),
        }
        x, y = window.grid(GRID)
        arrays = {"x": x, "y": y, "flips": by_seed[0].view(GRID, GRID).numpy()}
        store.save(self._flips_parts(name), numbers, arrays, {})

    def report(self, store: Store) -> Report:
        attacks = [store.load(self._attack_parts(seed)).numbers for seed in self.seeds]
        flips = {name: store.load(self._flips_parts(name)).numbers for name in METHODS}
        at_rest = {name: [plane.measured(run, store) for run in group] for name, group in self.cells().items()}
        moved = Table(
            "Points moved on a fixed network: share beyond its boundary",
            ("attack", "network", "steps", "crossed", "by 1.5 steps or more"),
            tuple(
                (name, f"{self.members} members" if kind == "ensemble" else "single", str(steps),
                 mean_std([a[f"{kind} {name} {steps}"]["crossed"] for a in attacks]),
                 mean_std([a[f"{kind} {name} {steps}"]["beyond a step"] for a in attacks]))
                for kind in ("single", "ensemble") for name in ATTACKS for steps in ATTACK_STEPS
            ),
            f"Step {ATTACK_ALPHA}, no limit on the radius; {len(self.seeds)} seeds, {len(DATA.draw().points)} points.",
        )  # fmt: skip
        after = Table(
            f"After training with radius {BALL.radius}",
            ("method", "errors at rest", "worst", "mean", "flips per grid point", f"area, {OFTEN}+ late flips",
             "errors"),
            tuple(
                (name, " ".join(str(m.errors) for m in at_rest[name]),
                 mean_std([m.worst_fraction for m in at_rest[name]]),
                 mean_std([m.mean_fraction for m in at_rest[name]]), mean_std(flips[name]["flips"], 1),
                 mean_std(flips[name]["often"]), " ".join(str(e) for e in flips[name]["errors"]))
                for name in METHODS
            ),
            f"At rest: {self.plan}. Flips: {self.oscillating}, {GRID} x {GRID} grid, late: after update {SETTLED}; "
            f"last column: errors of {len(DATA.draw().points)} at their end. Seeds {self.seeds[0]}..{self.seeds[-1]}.",
        )  # fmt: skip
        return Report(
            self.TITLE,
            "What do perturbations do where one radius cannot fit all points?",
            f"{DATA}, MLP {plane.NETWORK.widths}, step {ALPHA}, {STEPS} steps, radius {BALL.radius} (published: "
            "'large'), ensembles of ten standard-trained members.",
            _verdicts(attacks, flips, {name: [m.errors for m in group] for name, group in at_rest.items()}),
            (moved, after),
            (self._figure(store),),
        )

    def _figure(self, store: Store) -> Picture:
        attack = store.load(self._attack_parts(self.seeds[0])).arrays
        figure, axes = panels(2, 4, size=3.2)
        points, labels, x, y = (attack[name] for name in ("points", "labels", "x", "y"))
        for row, (name, kind) in enumerate((("LDP-PGD", "single"), ("UDP-PGD", "ensemble"))):
            for column, steps in enumerate(ATTACK_STEPS):
                panel = axes[row][column]
                if kind == "single":
                    draw_landscape(panel, x, y, 1 / (1 + np.exp(-attack["lead"])), PROBABILITY)
                    panel.contour(x, y, attack["lead"], levels=[0.0], colors="black", linewidths=1.2)
                else:
                    draw_landscape(panel, x, y, attack["ensemble entropy"], "Greens")
                    panel.contour(x, y, attack["ensemble lead"], levels=[0.0], colors="black", linewidths=1.2)
                draw_points(panel, points, labels)
                draw_points(panel, attack[f"{kind} {name} {steps}"], labels, size=26, marker="+")
                panel.set_xlim(x[0], x[-1])
                panel.set_ylim(y[0], y[-1])
                panel.set_title(f"{name}, {steps} step{'s' if steps > 1 else ''}", fontsize=10)
            draw_regions(axes[row][2], plane.picture(self.cells()[name][0], store))
            axes[row][2].set_title(f"{name}, after training", fontsize=10)
            flips = store.load(self._flips_parts(name)).arrays
            image = axes[row][3].pcolormesh(flips["x"], flips["y"], flips["flips"], cmap="magma", vmin=0, vmax=40)
            bare(axes[row][3])
            axes[row][3].set_title(f"{name}, boundary oscillations", fontsize=10)
            figure.colorbar(image, ax=axes[row][3], shrink=0.8, extend="max")
        return Picture(
            "two-distances",
            figure,
            "Columns 1 and 2: points (dots) and where 1 and 20 steps take them (crosses) on a fixed network; "
            "background above: probability of one network, below: entropy of ten. Column 3: regions after training. "
            f"Column 4: how often each place changed its class over the updates (seed {self.seeds[0]}).",
        )


STUDY = TwoDistancesStudy()


def _entropy(network: Network, points: Array) -> Array:
    return np.asarray(predictive.entropy(torch.as_tensor(log_probs(network, points))).numpy())


def _beyond(network: Network, start: torch.Tensor, end: torch.Tensor, labels: Array) -> float:
    """Share of points on the wrong side even after going back a step and a half: not mere overshoot of the last one."""
    way = end - start
    length = way.abs().amax(1, keepdim=True).clamp_min(1e-12)
    back = end - way / length * torch.minimum(length, torch.tensor(1.5 * ATTACK_ALPHA))
    return float((lead(log_probs(network, back.double().numpy()), 1) * (2 * labels - 1) < 0).mean())


def _verdicts(
    attacks: Sequence[Mapping[str, Mapping[str, float]]],
    flips: Mapping[str, Mapping[str, Sequence[float]]],
    errors: Mapping[str, Sequence[int]],
) -> tuple[Verdict, ...]:
    crossed = {
        (kind, name): [a[f"{kind} {name} 20"]["beyond a step"] for a in attacks]
        for kind in ("single", "ensemble")
        for name in ATTACKS
    }

    def with_most_seeds(name: str, seen: Callable[[float], bool]) -> Outcome:
        both = zip(crossed["single", name], crossed["ensemble", name], strict=True)
        return in_most_seeds([seen(one) and seen(ten) for one, ten in both])

    def shares(name: str) -> str:
        one, ten = (np.mean(crossed[kind, name]) for kind in ("single", "ensemble"))
        return f"{one:.2f} of the points (single), {ten:.2f} (ensemble)"

    more = [ldp - 2 * udp for ldp, udp in zip(flips["LDP-PGD"]["flips"], flips["UDP-PGD"]["flips"], strict=True)]
    return (
        Verdict(
            "On a fixed network, 20 steps of LDP carry points across the boundary (more than a quarter of them).",
            with_most_seeds("LDP-PGD", lambda share: share > 0.25),
            shares("LDP-PGD"),
        ),
        Verdict(
            "20 steps of UDP do not, with one network or ten (at most 2 % of them).",
            with_most_seeds("UDP-PGD", lambda share: share <= 0.02),
            shares("UDP-PGD"),
        ),
        Verdict(
            "Training with a large radius: LDP-PGD misclassifies training points, UDP-PGD does not, with most seeds.",
            in_most_seeds([ldp > 0 and udp == 0 for ldp, udp in zip(*(errors[name] for name in ATTACKS), strict=True)]),
            "errors of " + ", ".join(f"{name} {' '.join(map(str, errors[name]))}" for name in ATTACKS),
        ),
        Verdict(
            "LDP-PGD's boundary oscillates more than UDP-PGD's (at least twice the flips).",
            greater(mean_of(more), 0.0),
            ", ".join(f"{name} {np.mean(group['flips']):.1f}" for name, group in flips.items())
            + " flips per grid point",
        ),
    )
