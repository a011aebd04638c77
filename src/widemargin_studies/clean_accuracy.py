"""Figure 4 and its companion in App. E.1: accuracy over the radius of training; and which radius one would choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from widemargin.data.dataset import Splits
from widemargin.measure.robustness import robust_accuracy
from widemargin.perturb.balls import Ball
from widemargin.perturb.pgd import pgd_search
from widemargin.report.document import Picture, Report, Verdict
from widemargin.report.figures import COLOURS, panels
from widemargin.report.store import Store
from widemargin.report.tables import Table
from widemargin.report.verdicts import all_of, greater
from widemargin.uncertainty.network import Network
from widemargin_studies.beside import short, told
from widemargin_studies.pixels import CIFAR, FASHION, SVHN, Bench, Cell, ImageStudy, Judge, Numbers, Robustness, Scale
from widemargin_studies.scales import CIFAR_SMALL, FASHION_SMALL, ONE_SEED, PAPER

METHODS = ("PGD", "TRADES", "UDP-PGD", "UDPR")
RADII = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08)
FASHION_RADII = (0.1, 0.2, 0.3, 0.4, 0.5)


def _steps(bench: Bench, eps: float) -> tuple[float, int]:
    """Step length and number of steps as in Table 1 for this data and radius; the paper names ranges only."""
    alpha = 0.001 if bench == CIFAR and eps <= 0.04 else 0.002
    return alpha, round(eps / alpha)


def _cells(bench: Bench, radii: Sequence[float]) -> tuple[Cell, ...]:
    return tuple(Cell(bench, name, eps, *_steps(bench, eps)) for name in METHODS for eps in radii)


def _fashion_cells(radii: Sequence[float]) -> tuple[Cell, ...]:
    return tuple(Cell(FASHION, name, eps, eps / 20, 20) for name in METHODS for eps in radii)


@dataclass(frozen=True)
class WithValidation:
    """Also the accuracy under PGD with 20 steps on the validation images, by which one may choose."""

    test: Robustness

    @property
    def chosen_by(self) -> tuple[Ball, ...]:
        """The l-infinity balls of the test, as in the paper."""
        return tuple(ball for ball in self.test.balls if ball.name == "linf")

    @property
    def passes(self) -> float:
        return self.test.passes + 15 * 5_000 * len(self.chosen_by)

    def __str__(self) -> str:
        return f"{self.test} On all validation images PGD with 20 steps."

    def __call__(self, network: Network, parts: Splits) -> Numbers:
        numbers, arrays = self.test(network, parts)
        results: dict[str, Any] = {"validated": len(parts.validation)}
        for ball in self.chosen_by:
            attack = pgd_search(ball, ball.radius / 8, 20)
            results[validation(ball)] = robust_accuracy(network, parts.validation, attack)
        return Numbers(numbers | results, arrays)


def validation(ball: Ball) -> str:
    """The name of the number."""
    return f"validation {ball!r}"


def _tell(study: ImageStudy, store: Store) -> Report:
    benches = list(dict.fromkeys(cell.bench for cell in study.cells))
    figure, axes = panels(1, len(benches), size=3.6)
    tables, verdicts = [], []
    for bench, panel in zip(benches, axes[0], strict=True):
        title = bench.data.name
        results = {(cell.name, cell.eps): cell for cell in study.cells if cell.bench == bench}
        clean = {key: study.accuracy(cell, store, "clean") for key, cell in results.items()}
        radii = sorted({eps for _, eps in results})
        for colour, name in zip(COLOURS, METHODS, strict=False):
            panel.plot(radii, [100 * clean[name, eps].value for eps in radii], "o-", color=colour, label=name)
        panel.set_title(title, fontsize=10)
        panel.set_xticks(radii)
        panel.set_xlabel("radius of training")
        panel.set_ylabel("clean accuracy, %")
        for what, name in (("clean accuracy", "clean"), *((f"accuracy in {short(b)}", repr(b)) for b in _balls(study))):
            rows = tuple(
                (method, *(told([100 * v for v in study.numbers(results[method, eps], store, name)]) for eps in radii))
                for method in METHODS
            )
            note = f"On {study.tested(study.cells[0], store, name):,} test images; columns are radii of training."
            tables.append(Table(f"{title}: {what} in percent", ("method", *(f"{eps:g}" for eps in radii)), rows, note))
        verdicts.append(
            Verdict(
                f"{title}: at every radius UDP-PGD is more accurate on clean points than PGD and TRADES.",
                all_of(greater(clean["UDP-PGD", eps], clean[other, eps]) for eps in radii for other in METHODS[:2]),
                "; ".join(
                    f"{eps:g}: {clean['UDP-PGD', eps].percent} against {100 * clean['PGD', eps].value:.1f} and "
                    f"{100 * clean['TRADES', eps].value:.1f}"
                    for eps in radii
                ),
            )
        )
    axes[0][0].legend(fontsize=8)
    return Report(
        f"{study.TITLE}, scale {study.scale.name}",
        "What does a larger radius cost in clean accuracy?",
        f"{study.settings(store)} The paper prints a figure without numbers and names ranges of steps only: they are "
        "those of its Table 1 on SVHN and CIFAR-10, and at most 20 to the edge on Fashion-MNIST.",
        tuple(verdicts),
        tuple(tables),
        (Picture("clean-accuracy", figure, "Clean accuracy on the test images over the radius of training."),),
    )


def _balls(study: ImageStudy) -> tuple[Ball, ...]:
    judge = study.judge.test if isinstance(study.judge, WithValidation) else study.judge
    return judge.balls if isinstance(judge, Robustness) else ()


Tell = Callable[[ImageStudy, Store], Report]


def app_study(title: str, scale: Scale, radii: Sequence[float], tell: Tell = _tell) -> ImageStudy:
    """Fashion-MNIST; whatever is told of them, the networks and what was measured are the same."""
    judge: Judge = WithValidation(scale.robustness(FASHION.balls))
    return ImageStudy(title, scale, _fashion_cells(radii), judge, tell)


_FIG4, _APP = "Fig. 4: clean accuracy over the radius", "App. E.1: accuracy over the radius, Fashion-MNIST"
_FIG4_SMALL = replace(CIFAR_SMALL, tests=2_000)
FIG4_FULL = ImageStudy(_FIG4, PAPER, _cells(SVHN, RADII) + _cells(CIFAR, RADII), PAPER.robustness(()), _tell)
FIG4_SMALL = ImageStudy(
    _FIG4, _FIG4_SMALL, _cells(SVHN, RADII[1::3]) + _cells(CIFAR, RADII[1::3]), _FIG4_SMALL.robustness(()), _tell
)
# Scales and radii of App. E.1, for every study that reads its networks.
APP_SCALES = {
    "paper": (replace(PAPER, attacked=1_000), FASHION_RADII),
    "one seed": (replace(ONE_SEED, attacked=500, stages=(20,)), FASHION_RADII),
    "small": (replace(FASHION_SMALL, tests=2_000, most_steps=10), FASHION_RADII[::2]),
}
APP_FULL, APP_ONE, APP_SMALL = (app_study(_APP, scale, radii) for scale, radii in APP_SCALES.values())
