"""What must hold of every network that answers with several members: a new estimator is a new row here."""

import copy
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import nn

from widemargin import OPEN, Adam, Ensemble, Linf, MCDropout, Method, Plan, Updates, at_input, laplace, udp, udpr
from widemargin.data.toy import LMS5
from widemargin.measure.accuracy import accuracy
from widemargin.measure.robustness import robust_accuracy
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.spectral import ResidualMLPSpec
from widemargin.perturb.objectives import (
    perturbed_log_expected_entropy,
    perturbed_log_mutual_information,
    perturbed_log_variation_ratio,
)
from widemargin.perturb.pgd import pgd_search
from widemargin.recipes import standard
from widemargin.rng import Rng
from widemargin.runs.run import NetworkSpec
from widemargin.training.checkpoint import load_training, load_weights, save_training, save_weights
from widemargin.training.loop import Training, continue_training
from widemargin.uncertainty.drawn import PerStep
from widemargin.uncertainty.dropout import LastDropout
from widemargin.uncertainty.estimators import (
    AtInput,
    BeforeHead,
    DeepKernelSpec,
    EnsembleSpec,
    Estimator,
    MCDropoutSpec,
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


def carried_on(training: Training, method: Method, updates: int) -> list[float]:
    return [record.loss for record in islice(continue_training(training, CLOUD, method, PLAN), updates)]


@every_row
def test_every_member_answers_every_point(members: int, build: Callable[[], Network]) -> None:
    network = build().eval()
    answer = network.logits(network.encode(POINTS))
    assert answer.shape == (members, len(POINTS), 2)
    assert (answer.std(0) > 0).any(), "members that never differ are one"
    torch.testing.assert_close(network(POINTS).exp(), answer.softmax(-1).mean(0))
    assert network.penalty().shape == ()


@every_row
def test_evaluation_is_repeatable_and_a_point_does_not_depend_on_its_batch(
    members: int, build: Callable[[], Network]
) -> None:
    network = build().eval()
    before = torch.get_rng_state()
    together = network.logits(network.encode(POINTS))
    torch.rand(7)
    assert torch.equal(network.logits(network.encode(POINTS)), together)
    torch.set_rng_state(before)
    network(POINTS)
    assert torch.equal(torch.get_rng_state(), before), "the global generator was consumed"
    for rows in (slice(3, 4), slice(0, 7)):
        alone = network.logits(network.encode(POINTS[rows]))
        torch.testing.assert_close(alone, together[:, rows], rtol=1e-4, atol=1e-5)


@every_row
def test_a_copy_and_stored_weights_give_the_same_answer(
    members: int, build: Callable[[], Network], tmp_path: Path
) -> None:
    network, other = build().eval(), build().eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
    assert torch.equal(copy.deepcopy(network)(POINTS), network(POINTS))
    save_weights(tmp_path / "weights.safetensors", network, {})
    load_weights(tmp_path / "weights.safetensors", other)
    assert torch.equal(other(POINTS), network(POINTS))


@every_row
@every_method
def test_a_search_leaves_the_network_as_it_was(method: Method, members: int, build: Callable[[], Network]) -> None:
    network = build().train()
    before, state = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    modes = [module.training for module in network.modules()]
    first, again = (method.perturb(network, POINTS, LABELS, Rng.seeded(1)) for _ in range(2))
    assert torch.equal(first.delta, again.delta)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert [module.training for module in network.modules()] == modes
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in network.modules())
    assert torch.equal(torch.get_rng_state(), state)


@every_row
@every_method
def test_all_parameters_get_finite_gradients(method: Method, members: int, build: Callable[[], Network]) -> None:
    network = build().train()
    moved = method.perturb(network, POINTS, LABELS, Rng.seeded(1))
    with Rng.seeded(0).as_global():
        method.loss_at(network, POINTS, LABELS, moved).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


@every_row
def test_an_interrupted_training_goes_on_bit_by_bit(members: int, build: Callable[[], Network], tmp_path: Path) -> None:
    method = udp(BALL, 0.1, 3)
    whole = Training.begin(build(), PLAN)
    losses = carried_on(whole, method, 6)
    half = Training.begin(build(), PLAN)
    first = carried_on(half, method, 3)
    # Whoever evaluates in between, or draws, changes nothing.
    accuracy(half.network, CLOUD)
    torch.rand(3)
    save_training(tmp_path / "checkpoint.safetensors", half, "key", {})
    again = Training.begin(build(), PLAN)
    load_training(tmp_path / "checkpoint.safetensors", again, "key")
    assert first + carried_on(again, method, 3) == losses
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, again.network.state_dict()[name]), name


@every_row
def test_an_attack_climbs_the_mean_over_the_members_that_judge(members: int, build: Callable[[], Network]) -> None:
    network, attack = build(), pgd_search(BALL, 0.1, 5)
    first, again = (robust_accuracy(network, CLOUD, attack) for _ in range(2))
    assert first == again <= accuracy(network, CLOUD)
