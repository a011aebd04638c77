"""What must hold of every estimator: a new one is a row in `cases`, and one here for each network that it makes."""

from collections.abc import Callable

import pytest
from torch import nn

from cases import ESTIMATORS
from widemargin import OPEN, Adam, Ensemble, Linf, MCDropout, Method, Plan, Updates, at_input, laplace, udp, udpr
from widemargin.data.toy import LMS5
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.spectral import ResidualMLPSpec
from widemargin.parts import choices
from widemargin.perturb.objectives import (
    perturbed_log_expected_entropy,
    perturbed_log_mutual_information,
    perturbed_log_variation_ratio,
)
from widemargin.recipes import standard
from widemargin.rng import Rng
from widemargin.runs.run import NetworkSpec
from widemargin.testing import assert_estimator, assert_network, assert_resumes, assert_trains
from widemargin.uncertainty.drawn import PerStep
from widemargin.uncertainty.dropout import LastDropout
from widemargin.uncertainty.estimators import (
    AtInput,
    BeforeHead,
    DeepKernelSpec,
    EnsembleSpec,
    Estimator,
    MCDropoutSpec,
    SingleSpec,
)
from widemargin.uncertainty.network import Network

CLOUD = LMS5(count=40).draw()
POINTS, LABELS = CLOUD.points, CLOUD.labels
BALL = Linf(0.2, OPEN)
PLAN = Plan(Updates(6), Adam(0.01), batch=8)
METHODS = [
    standard(),
    udp(BALL, 0.1, 3),
    udpr(BALL, 0.1, 3, 0.5, measure=perturbed_log_mutual_information),
    udp(BALL, 0.1, 2, measure=perturbed_log_expected_entropy),
    udp(BALL, 0.1, 2, measure=perturbed_log_variation_ratio),
]


def made(estimator: Estimator, shape: NetworkSpec, place: AtInput | BeforeHead) -> Network:
    def build(member: int) -> nn.Module:
        return shape.build(Rng.seeded(member, purpose="weights").generators[0])

    return estimator.network(build, place, CLOUD)


def with_norm() -> nn.Module:
    with Rng.seeded(0).as_global():
        return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 2))


DROPPED = MLPSpec((2, 8, 8, 2), dropout=0.3)
PLAIN = MLPSpec((2, 8, 8, 2))
ROWS: dict[str, tuple[int, Callable[[], Network]]] = {
    "ensemble": (3, lambda: made(EnsembleSpec(3), PLAIN, AtInput())),
    "mixed ensemble": (2, lambda: Ensemble([with_norm(), MLPSpec((2, 4, 2)).build(Rng.seeded(1).generators[0])])),
    "dropout": (4, lambda: made(MCDropoutSpec(4), DROPPED, AtInput())),
    "dropout per step": (4, lambda: made(MCDropoutSpec(4, PerStep()), DROPPED, AtInput())),
    "last dropout": (4, lambda: made(MCDropoutSpec(4, over=LastDropout()), DROPPED, AtInput())),
    "latent dropout": (4, lambda: made(MCDropoutSpec(4), DROPPED, BeforeHead())),
    "dropout with batch-norm": (4, lambda: MCDropout(at_input(with_norm()), 4)),
    "laplace": (5, lambda: laplace(at_input(PLAIN.build(Rng.seeded(0).generators[0])), CLOUD, 5)),
    "deep kernel": (6, lambda: made(DeepKernelSpec(5, 6), ResidualMLPSpec(2, 2, 8, 2), AtInput())),
    "latent deep kernel": (6, lambda: made(DeepKernelSpec(5, 6, renewal=PerStep()), PLAIN, BeforeHead())),
}
every_row = pytest.mark.parametrize(("members", "build"), ROWS.values(), ids=list(ROWS))
every_method = pytest.mark.parametrize("method", METHODS, ids=repr)


def test_no_estimator_is_missing() -> None:
    library = {made for made in choices("estimator").values() if made.__module__ == SingleSpec.__module__}
    assert {type(one) for one in ESTIMATORS} == library | {SingleSpec}


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_it_holds(estimator: Estimator) -> None:
    assert_estimator(estimator, udp(BALL, 0.05, 2))


@every_row
def test_every_member_answers_alike_whenever_asked(members: int, build: Callable[[], Network]) -> None:
    network = build().eval()
    assert_network(network, POINTS)
    assert network.logits(network.encode(POINTS)).shape == (members, len(POINTS), 2)
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in network.modules())


@every_row
@every_method
def test_every_method_trains_it(method: Method, members: int, build: Callable[[], Network]) -> None:
    assert_trains(method, build(), POINTS)


@every_row
def test_an_interrupted_training_goes_on_bit_by_bit(members: int, build: Callable[[], Network]) -> None:
    assert_resumes(udp(BALL, 0.1, 3), build(), CLOUD)
