"""Every recipe over several balls, every attack and estimator, every kind of network: a new one is a new row here."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from widemargin import (
    L1,
    L2,
    OPEN,
    Box,
    Ensemble,
    Linf,
    Method,
    Single,
    at_input,
    fgsm,
    friendly,
    max_entropy,
    pgd,
    r_fgsm,
    trades,
    trades_cross_entropy,
    trades_random_start,
    udp,
    udp_consistency,
    udp_near,
    udp_projected,
    udp_single_step,
    udp_trades,
    udp_trades_cross_entropy,
    udpr,
    vat,
)
from widemargin.networks.mlp import MLP
from widemargin.perturb.apgd import APGD, TargetedAPGD
from widemargin.perturb.ascent import FullStep
from widemargin.perturb.attack import Attack, OnInputs
from widemargin.perturb.balls import Ball, Norm
from widemargin.perturb.bisected_apgd import BisectedAPGD
from widemargin.perturb.boundary_distance import WithBoundaryDistance
from widemargin.perturb.ddn import DDN
from widemargin.perturb.fab import FAB, ShortestFAB
from widemargin.perturb.fmn import FMN
from widemargin.perturb.objectives import dlr_loss, margin_loss
from widemargin.perturb.pgd import PGD, pgd_search
from widemargin.perturb.search import Search, Unperturbed
from widemargin.perturb.square import Square
from widemargin.recipes import standard
from widemargin.rng import Rng
from widemargin.uncertainty.cuts import after
from widemargin.uncertainty.estimators import DeepKernelSpec, EnsembleSpec, Estimator, MCDropoutSpec, SingleSpec
from widemargin.uncertainty.network import Network

FEATURES = 16
ROWS = 6
STEPS = 4

NORMS: tuple[Norm, ...] = (Linf, L2, L1)
PER_FEATURE = Box(low=(0.0, -0.1) * 8, high=(1.0, 0.9) * 8)
BALLS: tuple[Ball, ...] = (
    Linf(0.3),
    Linf(0.3, PER_FEATURE),
    L2(0.5),
    L2(0.5, OPEN),
    L1(1.0, OPEN),
    L1(1.0, PER_FEATURE),
)

WITHOUT_BALL: dict[str, Callable[[], Method]] = {"standard": standard, "max_entropy": lambda: max_entropy(0.5)}
WITH_BALL: dict[str, Callable[[Ball], Method]] = {
    "fgsm": fgsm,
    "r_fgsm": lambda ball: r_fgsm(ball, ball.radius / 3),
    "pgd": lambda ball: pgd(ball, ball.radius / 3, STEPS),
    "friendly": lambda ball: friendly(ball, ball.radius / 3, STEPS, patience=1),
    "trades": lambda ball: trades(ball, ball.radius / 3, STEPS, weight=2.0),
    "trades_cross_entropy": lambda ball: trades_cross_entropy(ball, ball.radius / 3, STEPS, weight=1.0),
    "trades_random_start": lambda ball: trades_random_start(ball, ball.radius / 3, STEPS, weight=2.0),
    "udp": lambda ball: udp(ball, ball.radius / 3, STEPS),
    "udpr": lambda ball: udpr(ball, ball.radius / 3, STEPS, weight=0.5),
    "udp_single_step": udp_single_step,
    "udp_trades": lambda ball: udp_trades(ball, ball.radius / 3, STEPS, weight=2.0),
    "udp_trades_cross_entropy": lambda ball: udp_trades_cross_entropy(ball, ball.radius / 3, STEPS, weight=1.0),
    "udp_near": lambda ball: udp_near(ball, ball.radius / 3, STEPS, scale=0.1),
    "udp_projected": lambda ball: udp_projected(ball, STEPS),
    "udp_consistency": lambda ball: udp_consistency(ball, ball.radius / 3, STEPS, weight=2.0),
    "vat": lambda ball: vat(ball, weight=2.0),
}
PERTURBING = [make(ball) for make in WITH_BALL.values() for ball in BALLS]
METHODS = [make() for make in WITHOUT_BALL.values()] + PERTURBING

ATTACKS: dict[str, Callable[[Ball], Attack]] = {
    "apgd-ce": lambda ball: APGD(ball, steps=6, restarts=2),
    "apgd-dlr": lambda ball: APGD(ball, dlr_loss, steps=6),
    "apgd-margin": lambda ball: APGD(ball, margin_loss, steps=15),
    "apgd-t": lambda ball: TargetedAPGD(ball, targets=3, steps=6),
    "apgd-t in turn": lambda ball: TargetedAPGD(ball, targets=3, steps=6, rows_at_once=1),
    "fab": lambda ball: FAB(ball, targets=3, steps=6, restarts=2),
    "square": lambda ball: Square(ball, queries=60),
    "pgd": lambda ball: PGD(ball, steps=20),
    "pgd targeted": lambda ball: PGD(ball, steps=6, targets=3),
    "search": lambda ball: OnInputs(pgd_search(ball, ball.radius / 3, steps=5)),
}
"""In a ball."""
SHORTEST_ATTACKS: dict[str, Callable[[Ball], Attack]] = {
    "shortest fab": lambda ball: ShortestFAB(ball, targets=3, steps=6),
    "ddn": lambda ball: DDN(ball.box, steps=20),
    "fmn": lambda ball: FMN(type(ball), ball.box, steps=20),  # type: ignore[arg-type]
    "fmn-t": lambda ball: FMN(type(ball), ball.box, steps=20, targets=3, starts=4),  # type: ignore[arg-type]
    "bisected apgd": lambda ball: BisectedAPGD(type(ball), ball.box, steps=6, trials=3),  # type: ignore[arg-type]
}
"""Without a radius: of a ball only norm and box count; of DDN only the box, since its norm is l2."""

ESTIMATORS: tuple[Estimator, ...] = (SingleSpec(), EnsembleSpec(2), MCDropoutSpec(3), DeepKernelSpec(4, 3))


def search_of(method: Method) -> Search:
    """The search that says where its points go."""
    return method.perturb.search if isinstance(method.perturb, WithBoundaryDistance) else method.perturb


def rounding(method: Method) -> float:
    """By how much a sample's path may differ from batch to batch."""
    # The published TRADES takes its first step along a gradient of 1e-8, of which rounding is a larger part.
    return 1e-7 if "offset_cross_entropy" in repr(method.perturb) else 1e-9


def is_random(method: Method) -> bool:
    """Does its search draw anything?"""
    if isinstance(method.perturb, Unperturbed):
        return False
    ascent = search_of(method).ascent
    return (
        getattr(ascent.steps, "least", ascent.steps.most) < ascent.steps.most
        or not ascent.start.at_center
        or ascent.fraction != FullStep()
    )


@dataclass(frozen=True)
class Setting:
    """A kind of network, and the points that it takes."""

    name: str
    build: Callable[[], Network]
    shape: tuple[int, ...] = (FEATURES,)
    classes: int = 5

    def __repr__(self) -> str:
        return self.name

    def network(self) -> Network:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return self.build().double()

    def points(self, rows: int = ROWS) -> Tensor:
        return 0.9 * Rng.seeded(7).uniform(torch.empty(rows, *self.shape, dtype=torch.float64))

    def labels(self, rows: int = ROWS) -> Tensor:
        return torch.arange(rows) % self.classes


def _with_state() -> Network:
    """Batch-norm and dropout: all that a search could disturb, with running statistics that are not the default."""
    norm = nn.BatchNorm1d(8)
    nn.init.uniform_(norm.running_mean, -0.1, 0.1)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    return Single(at_input(nn.Sequential(nn.Linear(FEATURES, 8), norm, nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 5))))


def _cut_in_two() -> Network:
    layers = [nn.Linear(FEATURES, FEATURES), nn.Sigmoid(), nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 5)]
    return Single(after(nn.Sequential(*layers), 2))


def _convolution() -> Network:
    return Single(at_input(nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5))))


WITH_STATE = Setting("with_state", _with_state)
ONE_MLP = Setting("one_mlp", lambda: Single(at_input(MLP(FEATURES, 8, 5))))
SETTINGS = [
    WITH_STATE,
    Setting("two_classes", lambda: Single(at_input(MLP(FEATURES, 8, 2))), classes=2),
    Setting("ensemble", lambda: Ensemble([MLP(FEATURES, 8, 5) for _ in range(3)])),
    Setting("latent", _cut_in_two),
    Setting("image", _convolution, shape=(1, 4, 4)),
]
