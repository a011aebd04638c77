"""What is drawn decides nothing alone: few draws are climbed, many fixed ones judge."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor

from noisy import POINTS, noisy
from widemargin import OPEN, Linf, MCDropout, Single, at_input
from widemargin.measure.eot import Draws, eot
from widemargin.networks.mlp import MLP
from widemargin.perturb.apgd import APGD
from widemargin.perturb.attack import Attack, Perturbed
from widemargin.perturb.fmn import FMN
from widemargin.rng import AnyRng, Rng, RowRng
from widemargin.shapes import Labels, Points
from widemargin.uncertainty.input_space import InputSpace
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.predictive import is_correct


def dropped(draws: int = 5) -> MCDropout:
    with Rng.seeded(0).as_global():
        return MCDropout(at_input(MLP(1, 20, 2, dropout=0.5)), draws).eval()


def boundary(network: Network) -> float:
    """Where the mean of its members changes its mind."""
    line = torch.linspace(-1, 1, 20_001)[:, None]
    with torch.no_grad():
        return float(line[network(line).argmax(1).bool()].min())


def test_without_draws_nothing_changes() -> None:
    network = Single(at_input(MLP(1, 4, 2))).eval()
    found = eot(network, POINTS)
    assert (found.network, found.climbed, found.draws, found.problem) == (network, network, None, "")
    attack = APGD(Linf(0.1))
    assert found.within([attack], attack.ball) == (attack,) == found.shortest([attack], attack.ball)


@pytest.mark.parametrize(("own", "draws"), [(5, Draws(8, 64)), (20, Draws(20, 160))])
def test_drawn_members_are_judged_by_more_and_other_draws(own: int, draws: Draws) -> None:
    for network in (dropped(own), InputSpace(dropped(own))):
        network(POINTS.points)
        found = eot(network, POINTS)
        assert found.draws == draws
        counts = [len(one.logits(one.encode(POINTS.points))) for one in (found.climbed, found.network)]
        assert counts == [draws.attack, draws.verification]
        many, few = (one.logits(one.encode(POINTS.points))[0] for one in (found.network, found.climbed))
        assert not torch.allclose(many, few), "other draws"
        assert len(network.logits(network.encode(POINTS.points))) == own, "the network itself stays as it is"


def test_attacks_see_the_mean_over_the_draws() -> None:
    climbed = eot(noisy(lambda x: 2 * x * torch.randn(x.shape[0], 2)), POINTS).climbed
    points = POINTS.points[5:8].clone().requires_grad_()
    (slope,) = torch.autograd.grad(climbed(points)[:, 0].exp().sum(), points)
    each = [torch.autograd.grad(climbed.logits(points)[m, :, 0].exp().sum(), points)[0] for m in range(8)]
    assert torch.allclose(slope, torch.stack(each).mean(0), atol=1e-6)


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (
            lambda x: torch.from_numpy(np.random.default_rng().normal(size=(1, 2)).astype("f4")),
            "not all of their chance",
        ),
        (lambda x: torch.cat([torch.empty_like(x).normal_()] * 2, 1) * torch.tensor([1.0, -1.0]), "cannot be fixed"),
    ],
    ids=["numpy", "in place"],
)
def test_chance_that_cannot_be_fixed_is_said(noise: Callable[[Tensor], Tensor], said: str) -> None:
    network = noisy(noise)
    found = eot(network, POINTS)
    assert found.network is network
    assert found.draws is None
    assert said in found.problem


@dataclass(frozen=True, eq=False)
class Watched:
    """Remembers whom it attacked, and on how many points."""

    attack: Attack
    seen: list[tuple[Network, int]] = field(default_factory=list)
    name = "watched"

    def __call__(self, model: Network, inputs: Points, labels: Labels, rng: AnyRng) -> Perturbed:
        self.seen.append((model, len(inputs)))
        return self.attack(model, inputs, labels, rng)


def test_what_only_a_few_draws_call_broken_is_not_broken() -> None:
    found = eot(noisy(), POINTS)
    few, many = boundary(found.climbed), boundary(found.network)
    assert abs(few - many) > 0.02, "the plant: few draws are off"
    with torch.no_grad():
        right = is_correct(found.network(POINTS.points), POINTS.labels)
    inputs, labels = POINTS.points[right], POINTS.labels[right]
    radius = 0.3
    watched = Watched(APGD(Linf(radius, OPEN), steps=20))
    known, by_few = ((inputs[:, 0] - at).abs() < radius for at in (many, few))
    assert bool((by_few & ~known).any()), "the few alone would break some"
    assert bool((known & ~by_few).any()), "and would spare others"
    rng, broken = RowRng(0, torch.arange(len(inputs))), torch.zeros_like(known)
    verified, last = found.within([watched], Linf(radius, OPEN))
    for attack, within_reach in ((verified, known & by_few), (last, known)):
        places = attack(found.network, inputs, labels, rng).points
        assert float((places - inputs).abs().max()) <= radius * (1 + 1e-5)
        with torch.no_grad():
            broken |= ~is_correct(found.network(places), labels)
        assert torch.equal(broken, within_reach)
    assert [model for model, _ in watched.seen] == [found.climbed, found.network, found.network]
    assert watched.seen[1][1] < len(inputs) / 4, "only the doubtful are attacked twice by the first"
    assert last.name == "watched on 64 draws"


def test_the_shortest_way_leads_to_the_boundary_of_the_many() -> None:
    found = eot(noisy(), POINTS)
    with torch.no_grad():
        right = is_correct(found.network(POINTS.points), POINTS.labels)
    inputs, labels = POINTS.points[right], POINTS.labels[right]
    (attack,) = found.shortest([FMN(Linf, OPEN, steps=50)], Linf(0.0, OPEN))
    places = attack(found.network, inputs, labels, RowRng(0, torch.arange(len(inputs)))).points
    with torch.no_grad():
        assert not is_correct(found.network(places), labels).any()
    way, known = (places - inputs).abs()[:, 0], (inputs[:, 0] - boundary(found.network)).abs()
    assert bool((way >= known - 1e-3).all())
    # A push doubles a way at most, and what is found then is brought back to the boundary.
    assert bool((way <= 2 * (inputs[:, 0] - boundary(found.climbed)).abs().maximum(known) + 0.02).all())
