"""Planted failures are found, and healthy networks are fine."""

import copy
from collections.abc import Callable

import pytest
import torch

from diagnosed import BALL, EFFORT, FLAT, IMAGES, Then, conv, linear, mlp, planted, single, stairs, verdicts
from widemargin import L1, L2, OPEN, Box, Dataset, Ensemble, Linf, Single, at_input
from widemargin.measure import diagnostics as d
from widemargin.perturb.balls import Ball
from widemargin.uncertainty.network import Network

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


@pytest.mark.parametrize(("build", "cloud", "ball"), [row[1:] for row in HEALTHY], ids=[row[0] for row in HEALTHY])
def test_healthy_networks_are_fine(build: Callable[[], Network], cloud: Dataset, ball: Ball) -> None:
    seen: list[d.Finding] = []
    findings = d.all_findings(
        d.Examined(build(), cloud, ball, (ball.radius / 2, ball.radius), (build(),), effort=EFFORT), seen.append
    )
    assert tuple(seen) == findings
    assert len(verdicts(findings)) == 12
    assert {name: v for name, v in verdicts(findings).items() if v != "fine"} == {}, findings
    assert all(finding.evidence and finding.numbers and not finding.advice for finding in findings)


def test_a_masked_network_is_caught_by_all_that_attack() -> None:
    masked = d.Examined(planted(before=stairs), FLAT, Linf(0.25), surrogates=(single(mlp()),), effort=EFFORT)
    names = verdicts(d.all_findings(masked))
    caught = {name for name, verdict in names.items() if verdict == "wrong"}
    assert caught == {"gradients", "loss surface", "random noise", "black box", "transfer", "large radius"}


def test_the_network_and_the_global_generator_stay_as_they_are() -> None:
    network = Single(at_input(Then(copy.deepcopy(conv()), lambda x: x + 0.01 * torch.randn_like(x))))
    network.train()
    network.get_submodule("head.module.1").eval()
    frozen = next(network.parameters()).requires_grad_(False)
    before, generator = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    modes = [module.training for module in network.modules()]
    d.all_findings(d.Examined(network, IMAGES, BALL, surrogates=(network,), effort=EFFORT))
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
        d.all_findings(d.Examined(network, FLAT, BALL))
