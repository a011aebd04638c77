"""Planted failures are found, and healthy networks are fine."""

import copy
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from widemargin import L1, L2, OPEN, Box, Dataset, Ensemble, Linf, Single, at_input
from widemargin.measure import diagnostics as d
from widemargin.measure.diagnostics import strength
from widemargin.measure.diagnostics import suite as every
from widemargin.networks.mlp import MLP
from widemargin.perturb.balls import Ball
from widemargin.perturb.pgd import PGD
from widemargin.rng import Rng
from widemargin.uncertainty.network import Network

ROWS = 80
BALL = Linf(0.1)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """These networks are small enough for less effort."""
    monkeypatch.setattr(every, "MANY_STEPS", 30)
    monkeypatch.setattr(strength, "MANY_STEPS", 30)
    monkeypatch.setattr(every, "_QUERIES", 100)
    monkeypatch.setattr(strength, "_DRAWS", 8)


def blobs(classes: int, *shape: int) -> Dataset:
    """Classes around points of their own, in the unit box."""
    labels = torch.arange(ROWS) % classes
    centers = 0.3 + 0.4 * Rng.seeded(1).uniform(torch.empty(classes, *shape))
    noise = Rng.seeded(2).normal(torch.empty(ROWS, *shape))
    return Dataset((centers[labels] + 0.06 * noise).clamp(0, 1), labels)


FLAT, IMAGES = blobs(3, 12), blobs(4, 1, 6, 6)


def trained(module: nn.Module, cloud: Dataset, steps: int = 60) -> nn.Module:
    optimizer = torch.optim.Adam(module.parameters(), 0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(module(cloud.points), cloud.labels).backward()
        optimizer.step()
    optimizer.zero_grad()
    return module.eval()


@cache
def linear() -> nn.Module:
    with Rng.seeded(0).as_global():
        return trained(nn.Linear(12, 3), FLAT, 120)


@cache
def mlp() -> nn.Module:
    with Rng.seeded(0).as_global():
        return trained(MLP(12, 24, 3), FLAT)


@cache
def conv() -> nn.Module:
    with Rng.seeded(0).as_global():
        layers = [nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(96, 4)]
        return trained(nn.Sequential(*layers), IMAGES)


class Then(nn.Module):
    """A function before a network and one after it."""

    def __init__(
        self,
        module: nn.Module,
        before: Callable[[Tensor], Tensor] = lambda x: x,
        after: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> None:
        super().__init__()
        self.module, self.before, self.after = module, before, after

    def forward(self, points: Tensor) -> Tensor:
        return self.after(self.module(self.before(points)))  # type: ignore[no-any-return]


def single(module: nn.Module) -> Network:
    return Single(at_input(module)).eval()


def planted(
    before: Callable[[Tensor], Tensor] = lambda x: x, after: Callable[[Tensor], Tensor] = lambda x: x
) -> Network:
    return single(Then(mlp(), before, after))


def stairs(points: Tensor) -> Tensor:
    return (points * 8).round() / 8


HEALTHY: list[tuple[str, Callable[[], Network], Dataset, Ball]] = [
    ("linear", lambda: single(linear()), FLAT, BALL),
    ("mlp", lambda: single(mlp()), FLAT, BALL),
    ("mlp l2 open", lambda: single(mlp()), FLAT, L2(0.3, OPEN)),
    ("mlp l1 per feature", lambda: single(mlp()), FLAT, L1(0.8, Box((0.0, -0.1) * 6, (1.0, 1.1) * 6))),
    ("conv", lambda: single(conv()), IMAGES, BALL),
    ("conv l2", lambda: single(conv()), IMAGES, L2(0.4)),
    ("ensemble", lambda: Ensemble([mlp(), linear()]).eval(), FLAT, BALL),
    ("log-softmax", lambda: planted(after=lambda z: z.log_softmax(-1)), FLAT, BALL),
    ("two classes", lambda: planted(after=lambda z: z[:, :2]), Dataset(FLAT.points, FLAT.labels % 2), BALL),
]


def verdicts(findings: tuple[d.Finding, ...]) -> dict[str, str]:
    return {finding.name: finding.verdict for finding in findings}


@pytest.mark.parametrize(("build", "cloud", "ball"), [row[1:] for row in HEALTHY], ids=[row[0] for row in HEALTHY])
def test_healthy_networks_are_fine(build: Callable[[], Network], cloud: Dataset, ball: Ball) -> None:
    seen: list[d.Finding] = []
    curve = [(0.0, 1.0, ROWS), (0.1, 0.5, ROWS), (0.2, 0.1, ROWS)]
    findings = d.all_findings(build(), cloud, ball, curve, [build()], on_progress=seen.append)
    assert tuple(seen) == findings
    assert len(verdicts(findings)) == 12
    assert {name: v for name, v in verdicts(findings).items() if v != "fine"} == {}, findings
    assert all(finding.evidence and finding.numbers and not finding.advice for finding in findings)


def test_probabilities() -> None:
    finding = d.probabilities(planted(after=lambda z: z.softmax(-1)), FLAT)
    assert (finding.verdict, finding.numbers["share"]) == ("wrong", 1.0)
    one_of_two = Ensemble([Then(mlp(), after=lambda z: z.softmax(-1)), linear()])
    assert d.probabilities(one_of_two, FLAT).verdict == "wrong"
    assert "log-probabilities" in d.probabilities(planted(after=lambda z: z.log_softmax(-1)), FLAT).evidence


def test_randomness() -> None:
    much = d.randomness(planted(before=lambda x: x + 0.3 * torch.randn_like(x)), FLAT)
    assert much.verdict == "wrong"
    assert much.numbers["share"] == 1
    assert much.numbers["share_class_changes"] > 0
    assert d.randomness(planted(after=lambda z: z + 1e-3 * torch.randn_like(z)), FLAT).verdict == "suspicious"


def test_saturated_softmax_is_told_from_flat_networks() -> None:
    saturated = d.gradients(planted(after=lambda z: 1e4 * z), FLAT)
    assert saturated.verdict == "wrong"
    assert saturated.numbers["share_zero_cross_entropy"] > 0.5
    assert saturated.numbers["share_saturated"] > 0.5
    assert saturated.numbers["share_zero_margin"] == 0
    assert "cross-entropy is saturated" in saturated.advice
    for flat in (
        planted(before=stairs),
        planted(after=torch.sign),
        planted(after=torch.round),
        planted(after=lambda z: z.detach()),
    ):
        finding = d.gradients(flat, FLAT)
        assert (finding.verdict, finding.numbers["share_zero_margin"]) == ("wrong", 1.0)
        assert "hides" in finding.advice
    nearly = d.gradients(planted(after=lambda z: z.round() + 1e-4 * z), FLAT)
    assert nearly.numbers["share_zero_margin"] == 0
    assert nearly.verdict == "wrong"
    member = d.gradients(Ensemble([Then(mlp(), stairs), linear()]), FLAT)
    assert (member.verdict, member.numbers["share_zero_member"]) == ("wrong", 1.0)


def test_modes() -> None:
    network = single(copy.deepcopy(conv()))
    assert d.modes(network, IMAGES).verdict == "fine"
    head = network.get_submodule("head.4")
    head.train()
    finding = d.modes(network, IMAGES)
    assert finding.verdict == "wrong"
    assert "head.4" in finding.evidence
    assert "head.1" not in finding.evidence
    network.train()
    assert "head.1, head.4" in d.modes(network, IMAGES).evidence
    one = Dataset(IMAGES.points[:1], IMAGES.labels[:1])
    assert d.modes(network, one).verdict == "suspicious"
    assert d.modes(single(nn.BatchNorm1d(12, track_running_stats=False)), FLAT).verdict == "wrong"
    assert d.modes(Single(at_input(copy.deepcopy(mlp()))).train(), FLAT).verdict == "fine"


def test_inputs_in_box() -> None:
    pixels = Dataset(255 * FLAT.points, FLAT.labels)
    finding = d.inputs_in_box(pixels, BALL)
    assert (finding.verdict, finding.numbers["share_outside"]) == ("wrong", 1.0)
    assert finding.numbers["highest"] > 100
    assert d.inputs_in_box(FLAT, Linf(8.0, Box(0.0, 255.0))).verdict == "suspicious"
    assert d.inputs_in_box(FLAT, Linf(8.0, Box((0.0,) * 12, (255.0,) * 12))).verdict == "suspicious"
    assert d.inputs_in_box(pixels, Linf(8.0, Box(0.0, 255.0))).verdict == "fine"
    assert d.inputs_in_box(pixels, Linf(8.0, OPEN)).verdict == "fine"
    assert d.inputs_in_box(pixels, Linf(8.0, Box(0.0, float("inf")))).verdict == "fine"
    names = verdicts(d.all_findings(planted(before=lambda x: x / 255), pixels, BALL))
    assert names["inputs in box"] == "wrong"
    assert "large radius" not in names


def test_rising() -> None:
    assert d.rising([(0.2, 0.4, 1000), (0.1, 0.5, 1000)]).verdict == "fine"
    assert d.rising([(0.1, 0.5, 1000), (0.2, 0.501, 1000)]).verdict == "suspicious"
    finding = d.rising([(0.1, 0.5, 1000), (0.2, 0.45, 1000), (0.3, 0.52, 1000)])
    assert finding.verdict == "wrong"
    assert finding.numbers["rise"] == pytest.approx(0.07)
    assert d.rising([(0.1, 0.5, 1000), (0.2, 0.52, 900)]).verdict == "fine"
    assert d.rising([(0.1, 0.5, 1000), (0.2, 0.6, 900)]).verdict == "wrong"
    with pytest.raises(ValueError, match="at least two radii, got 1"):
        d.rising([(0.1, 0.5, 10)])
    assert "rising" not in verdicts(d.all_findings(single(mlp()), FLAT, BALL, [(0.1, 0.5, 10)]))


@pytest.mark.parametrize("ball", [BALL, L2(0.3, OPEN)], ids=repr)
def test_large_radius(ball: Ball) -> None:
    finding = d.large_radius(planted(before=stairs), FLAT, ball)
    assert finding.verdict == "wrong"
    assert finding.numbers["share"] > 0.9
    constant = planted(after=lambda z: 0 * z + torch.tensor([1.0, 0.0, 0.0]))
    assert d.large_radius(constant, FLAT, ball).verdict == "suspicious"


def test_black_box() -> None:
    broken = torch.arange(1000) < 400
    assert d.black_box({"apgd": broken}, {"square": torch.arange(1000) < 402}).verdict == "fine"
    assert d.black_box({"apgd": broken}, {"square": torch.arange(1000) < 403}).verdict == "suspicious"
    finding = d.black_box({"apgd": ~broken, "fab": broken & False}, {"square": broken})
    assert finding.verdict == "wrong"
    assert finding.numbers == {"gain": 0.4, "square": 0.4}
    assert d.black_box({"apgd": broken[:20] & False}, {"square": torch.arange(20) < 1}).verdict == "suspicious"
    with pytest.raises(ValueError, match="at least one attack of each kind"):
        d.black_box({}, {"square": broken})


def test_transfer() -> None:
    masked = planted(before=stairs)
    white = d.broken_by(masked, FLAT, PGD(Linf(0.2), 10))
    finding = d.transfer(masked, FLAT, Linf(0.2), [single(linear()), single(mlp())], white)
    assert finding.verdict == "wrong"
    assert finding.numbers["surrogate 1"] > 0.2
    with pytest.raises(ValueError, match="at least one surrogate"):
        d.transfer(masked, FLAT, BALL, [], white)


def test_random_noise() -> None:
    masked, ball = planted(before=stairs), Linf(0.25)
    white = d.broken_by(masked, FLAT, PGD(ball, 10))
    finding = d.random_noise(masked, FLAT, ball, white)
    assert finding.verdict == "wrong"
    assert finding.numbers["share_noise_only"] > 0.01 > finding.numbers["share_few_steps"]


def test_more_steps() -> None:
    few = torch.arange(1000) < 400
    assert d.more_steps(few, torch.arange(1000) < 405).verdict == "fine"
    assert d.more_steps(few, torch.arange(1000) < 406).verdict == "suspicious"
    assert d.more_steps(few, torch.arange(1000) < 500).verdict == "wrong"
    assert [d.more_steps(few[385:415], torch.arange(30) < n).verdict for n in (16, 17)] == ["fine", "wrong"]


def test_loss_surface() -> None:
    saturated = d.loss_surface(planted(after=lambda z: 1e4 * z), FLAT, BALL)
    assert saturated.verdict == "suspicious"
    assert saturated.numbers["share"] > 0.5 > saturated.numbers["share_margin"]
    flat = d.loss_surface(planted(before=stairs), FLAT, BALL)
    assert (flat.verdict, flat.numbers["share_margin"]) == ("wrong", 1.0)


def test_a_masked_network_is_caught_by_all_that_attack() -> None:
    names = verdicts(d.all_findings(planted(before=stairs), FLAT, Linf(0.25), surrogates=[single(mlp())]))
    caught = {name for name, verdict in names.items() if verdict == "wrong"}
    assert caught == {"gradients", "loss surface", "random noise", "black box", "transfer", "large radius"}


def test_the_network_and_the_global_generator_stay_as_they_are() -> None:
    network = Single(at_input(Then(copy.deepcopy(conv()), lambda x: x + 0.01 * torch.randn_like(x))))
    network.train()
    network.get_submodule("head.module.1").eval()
    frozen = next(network.parameters()).requires_grad_(False)
    before, generator = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    modes = [module.training for module in network.modules()]
    d.all_findings(network, IMAGES, BALL, surrogates=[network])
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state())
    assert modes == [module.training for module in network.modules()]
    assert all(parameter.grad is None for parameter in network.parameters())
    assert [p.requires_grad for p in network.parameters()].count(False) == 1
    assert not frozen.requires_grad


def test_one_network_at_a_time() -> None:
    network = single(linear())
    network.replicas = 2
    with pytest.raises(ValueError, match="2 replicas"):
        d.all_findings(network, FLAT, BALL)
