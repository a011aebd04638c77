"""Every recipe over several balls, and every kind of network to run it on: a new method is a new row here."""

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
from widemargin.perturb.ascent import FullStep
from widemargin.perturb.balls import Ball
from widemargin.perturb.boundary_distance import WithBoundaryDistance
from widemargin.perturb.search import Search, Unperturbed
from widemargin.recipes import standard
from widemargin.rng import Rng
from widemargin.uncertainty.cuts import after
from widemargin.uncertainty.network import Network

FEATURES = 16
ROWS = 6
STEPS = 4

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


def search_of(method: Method) -> Search:
    """The search that says where its points go."""
    return method.perturb.search if isinstance(method.perturb, WithBoundaryDistance) else method.perturb


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
