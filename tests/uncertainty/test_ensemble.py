from dataclasses import replace

import pytest
import torch
from torch import nn

from widemargin import OPEN, SGD, Adam, Ensemble, Linf, Plan, Single, Updates, at_input
from widemargin.data.toy import LMS5
from widemargin.networks.mlp import MLP, MLPSpec
from widemargin.recipes import standard, udp
from widemargin.rng import Rng
from widemargin.training.loop import train
from widemargin.training.plan import jointly

POINTS = torch.linspace(-1, 1, 18, dtype=torch.float64).view(6, 3)


def members(count: int, *widths: int) -> list[MLP]:
    return [MLPSpec(widths).build(Rng.seeded(seed).generators[0]).double() for seed in range(count)]


def test_logits_are_those_of_each_member() -> None:
    networks = [*members(2, 3, 8, 2), nn.Linear(3, 2).double()]
    expected = torch.stack([network(POINTS) for network in networks])
    assert torch.equal(Ensemble(networks).eval().logits(POINTS), expected)


@pytest.mark.parametrize(("descent", "close"), [(SGD(0.05), 1e-9), (Adam(0.01), 1e-4)], ids=repr)
def test_jointly_trained_members_become_what_each_becomes_alone(descent: SGD | Adam, close: float) -> None:
    cloud = LMS5(count=24).draw()
    cloud = replace(cloud, stored=cloud.points.double())
    alone, together = members(3, 2, 6, 2), members(3, 2, 6, 2)
    list(train(Ensemble(together), cloud, standard(), Plan(Updates(15), jointly(descent, 3), 8)))
    for one, other in zip(alone, together, strict=True):
        list(train(Single(at_input(one)), cloud, standard(), Plan(Updates(15), descent, 8)))
        for a, b in zip(one.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=close)


def test_members_that_were_trained_before_are_perturbed_together() -> None:
    trained = members(2, 3, 8, 2)
    moved = udp(Linf(0.1, OPEN), 0.05, 2).perturb(
        Ensemble(trained), POINTS, torch.zeros(6, dtype=torch.long), Rng.seeded(0)
    )
    assert moved.delta.shape == POINTS.shape


def test_an_ensemble_answers_with_every_member() -> None:
    members = [MLP(3, 4).double(), MLP(3, 7, 4).double()]
    answer = Ensemble(members).logits(POINTS)
    assert torch.equal(answer, torch.stack([member(POINTS) for member in members]))
    with pytest.raises(ValueError, match=r"^an Ensemble needs at least one member, got none$"):
        Ensemble([])
