"""App. D.5: where do 50 steps of PGD and of UDP take the points, on a deep kernel that was trained on clean ones?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from widemargin.data.dataset import Dataset
from widemargin.measure.boundary import Array, Window, lead, log_probs
from widemargin.perturb.ascent import Ascent, Fixed, Steepest
from widemargin.perturb.objectives import perturbed_log_entropy, perturbed_loss
from widemargin.perturb.search import Search
from widemargin.recipes import standard
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import BOUNDARY, COLOURS, bare, draw_landscape, draw_points, label_grid, panels
from widemargin.report.store import Arrays, Parts, Store
from widemargin.report.tables import Table, mean_std
from widemargin.report.verdicts import all_of, greater, in_most_seeds, mean_of
from widemargin.rng import Rng
from widemargin.workers import Job, OnProgress, Workers
from widemargin_studies import due
from widemargin_studies.due import DUE, Due
from widemargin_studies.pictorial import entropy_of, loss_of

UNEXPLORED = 0.5
"""So far from all training points a place is unexplored."""


@dataclass(frozen=True, eq=False)
class Ends:
    """Where one search took the points of one seed's network."""

    margin: Array
    """How far each end is from the network's boundary, negative beyond it."""
    entropy: Array
    """As a share of the most there is."""
    away: Array
    """How far each end is from the nearest training point."""

    @property
    def crossed(self) -> float:
        return float((self.margin < 0).mean())

    @property
    def beyond(self) -> float:
        """Share of ends that no overshoot of a last step explains."""
        return float((self.margin < -due.ONE_STEP).mean())

    @property
    def at_boundary(self) -> float:
        return float((np.abs(self.margin) <= due.ONE_STEP).mean())

    @property
    def unexplored(self) -> float:
        """Share of ends that are neither at the boundary nor near any training point."""
        return float(((np.abs(self.margin) > due.ONE_STEP) & (self.away > UNEXPLORED)).mean())


@dataclass(frozen=True)
class DueAttacks:
    TITLE: str = "App. D.5: PGD-50 and UDP-50 on a fixed deep kernel (DUE)"
    CORE_MINUTES: float = 0.5
    kernel: Due = DUE

    @property
    def searches(self) -> Mapping[str, Search]:
        """PGD first."""
        steps = self.kernel.steps
        ascent = Ascent(Fixed(steps), Steepest(due.ALPHA))
        return {
            f"PGD-{steps}": Search(perturbed_loss, due.BALL, ascent),
            f"UDP-{steps}": Search(perturbed_log_entropy, due.BALL, ascent),
        }

    def parts(self, seed: int) -> Parts:
        return ("due attacks", self.kernel.run_of(standard(), seed), self.searches)

    def run(self, store: Store, workers: Workers) -> None:
        todo = [seed for seed in self.kernel.seeds if self.parts(seed) not in store]
        workers.do(
            [Job(f"deep kernel, seed {seed}", self.kernel.updates, self.attack, (seed, store)) for seed in todo],
            self.TITLE,
        )

    def missing(self, store: Store) -> int:
        return sum(self.parts(seed) not in store for seed in self.kernel.seeds)

    def attack(self, seed: int, store: Store, on_progress: OnProgress) -> None:
        run = self.kernel.run_of(standard(), seed)
        network, cloud = due.trained(run, on_progress), self.kernel.data.draw()
        rng = Rng.seeded(seed, purpose="attack")
        ends = {
            name: cloud.points + search(network, cloud.points, cloud.labels, rng).delta
            for name, search in self.searches.items()
        }
        # Starts and ends in one cloud: the window of the measurement then holds them all.
        every = torch.cat([cloud.points, *ends.values()])
        results = self.kernel.grids.margins(network, Dataset(every, cloud.labels.repeat(len(ends) + 1))).margin
        start, *moved = results.reshape(-1, len(cloud))
        window = Window.around(cloud, pad=1.1 * due.BALL.radius)
        x, y = window.grid(self.kernel.grids.picture)
        answers = log_probs(network, window.points(len(x))).reshape(len(y), len(x), -1)
        arrays = {
            "points": cloud.points.numpy(),
            "labels": cloud.labels.numpy(),
            "x": x,
            "y": y,
            "lead": lead(answers, 1),
        }
        for (name, end), margin in zip(ends.items(), moved, strict=True):
            answer = log_probs(network, end.double().numpy())
            arrays[name] = end.numpy()
            arrays[f"{name} margin"] = margin
            arrays[f"{name} entropy"] = entropy_of(lead(answer, 1)) / np.log(2)
            arrays[f"{name} away"] = torch.cdist(end, cloud.points).amin(1).numpy()
        store.save(self.parts(seed), {"errors": int((start < 0).sum())}, arrays, {})

    def report(self, store: Store) -> Report:
        stored = [store.load(self.parts(seed)) for seed in self.kernel.seeds]
        results = {name: [ends_of(name, each.arrays) for each in stored] for name in self.searches}
        errors = " ".join(str(each.numbers["errors"]) for each in stored)
        return Report(
            self.TITLE,
            "Does a search for uncertainty stop at the boundary of a Gaussian process, where one for loss goes on?",
            f"{self.kernel.settings()} Errors before anything moves: {errors}.",
            verdicts(results),
            (self._table(results),),
            (self._picture([each.arrays for each in stored]),),
        )

    def _table(self, results: dict[str, list[Ends]]) -> Table:
        return Table(
            "Where the points end",
            ("search", "crossed", "by over a step", "at it", "unexplored", "entropy / log 2"),
            tuple(
                (
                    name,
                    mean_std([ends.crossed for ends in group]),
                    mean_std([ends.beyond for ends in group]),
                    mean_std([ends.at_boundary for ends in group]),
                    mean_std([ends.unexplored for ends in group]),
                    mean_std([float(ends.entropy.mean()) for ends in group]),
                )
                for name, group in results.items()
            ),
            f"Shares of {len(self.kernel.data.draw())} points, mean and standard deviation of {len(self.kernel.seeds)} "
            f"networks; a step reaches {due.ONE_STEP:.2f} in the plane. At it: within a step of the boundary; "
            f"unexplored: not at it, and farther than {UNEXPLORED} from every training point.",
        )

    def _picture(self, by_seed: Sequence[Arrays]) -> Picture:
        pgd, udp = self.searches
        figure, axes = panels(len(by_seed), 3, size=2.9)
        for row, arrays in zip(axes, by_seed, strict=True):
            x, y, ahead, labels = (arrays[name] for name in ("x", "y", "lead", "labels"))
            losses = [(pgd, loss_of(label, ahead), "Purples", labels == label) for label in (0, 1)]
            for panel, (name, values, colours, shown) in zip(
                row, [*losses, (udp, entropy_of(ahead), "Greens", labels >= 0)], strict=True
            ):
                draw_landscape(panel, x, y, values, colours)
                panel.contour(x, y, ahead, levels=[0.0], colors=BOUNDARY, linewidths=1.2)
                start, end, shown_labels = arrays["points"][shown], arrays[name][shown], labels[shown]
                for a, b, label in zip(start, end, shown_labels, strict=True):
                    panel.plot(*np.stack([a, b]).T, color=COLOURS[label], linewidth=0.4, alpha=0.6)
                draw_points(panel, start, shown_labels)
                draw_points(panel, end, shown_labels, size=26, marker="+")
                panel.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
                bare(panel)
        columns = [f"{pgd}, loss of class 0", f"{pgd}, loss of class 1", f"{udp}, entropy"]
        label_grid(axes, columns, [f"seed {seed}" for seed in self.kernel.seeds])
        return Picture(
            "due-attacks",
            figure,
            "Points (dots) and where the search takes them (crosses) on a fixed deep kernel; darker is more of what "
            "the search climbs; black: the network's boundary.",
        )


STUDY = DueAttacks()


def ends_of(name: str, arrays: Arrays) -> Ends:
    return Ends(*(arrays[f"{name} {what}"] for what in ("margin", "entropy", "away")))


def verdicts(results: Mapping[str, Sequence[Ends]]) -> tuple[Verdict, ...]:
    """Of PGD and of UDP, by their names."""
    (pgd_name, pgd), (udp_name, udp) = results.items()
    at_boundary = float(np.mean([ends.at_boundary for ends in udp]))
    unexplored = [float(np.mean([ends.unexplored for ends in group])) for group in (pgd, udp)]
    return (
        Verdict(
            # The bar of App. D.2, where the claim is the same.
            f"{pgd_name} carries points across the boundary (more than a quarter of them, by more than a step).",
            in_most_seeds([ends.beyond > 0.25 for ends in pgd]),
            _shares([ends.beyond for ends in pgd]),
        ),
        Verdict(
            f"{udp_name} does not (at most 2 % of them by more than a step).",
            in_most_seeds([ends.beyond <= 0.02 for ends in udp]),
            _shares([ends.beyond for ends in udp]),
        ),
        Verdict(
            "UDP pushes points both to the boundary and to unexplored regions (at least a tenth of them each).",
            all_of(
                greater(mean_of(shares), 0.1)
                for shares in ([ends.at_boundary for ends in udp], [ends.unexplored for ends in udp])
            ),
            f"{100 * at_boundary:.0f} % end within a step of the boundary, {100 * unexplored[1]:.0f} % elsewhere and "
            f"farther than {UNEXPLORED} from every training point; of PGD's, {100 * unexplored[0]:.0f} % end there too",
        ),
    )


def _shares(shares: Sequence[float]) -> str:
    return "share by seed: " + " ".join(f"{share:.2f}" for share in shares)
