"""One protocol: a search serves as an attack, and an attack as a training search."""

import pytest
import torch
from torch import nn

import widemargin as wm
from widemargin.measure.autoattack import autoattack
from widemargin.measure.robustness import robust
from widemargin.perturb.attack import AtCut, OnInputs
from widemargin.perturb.pgd import PGD, pgd_search
from widemargin.rng import Rng

BALL = wm.L2(0.3, wm.OPEN)
POINTS = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))


def network(cut: int = 0) -> wm.Single:
    with Rng.seeded(0).as_global():
        layers = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 2))
    return wm.Single(wm.at_input(layers) if cut == 0 else wm.uncertainty.after(layers, cut))


def labels(of: wm.Single) -> torch.Tensor:
    with torch.no_grad():
        return of.eval()(POINTS).argmax(1)


def test_a_search_among_attacks_breaks_whom_it_breaks_alone() -> None:
    model, search = network(cut=2), pgd_search(BALL, 0.1, 5)
    cloud = wm.Dataset(POINTS, labels(model))
    attacked = autoattack(model, cloud, BALL, [OnInputs(search, "pgd")])
    assert torch.equal(attacked.standing, robust(model, cloud, search))
    assert 0 < attacked.counts["pgd"] < 20


@pytest.mark.parametrize("cut", [0, 2])
def test_a_method_trains_on_what_an_attack_finds_and_the_network_is_as_before(cut: int) -> None:
    model = network(cut)
    known = labels(model)
    model.train()
    method = wm.Method(AtCut(PGD(BALL, 5)), wm.perturb.perturbed_loss)
    moved = method.perturb(model, POINTS, known, Rng.seeded(0))
    assert moved.delta.shape == model.encode(POINTS).shape
    assert float(moved.distance.max()) <= 0.3001
    assert all(module.training for module in model.modules())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    model.eval()
    with torch.no_grad():
        places = (model.encode(POINTS), moved.points)
        before, after = (model.logits(at).log_softmax(-1)[0, torch.arange(20), known] for at in places)
    assert bool((after <= before).all())
    assert bool((after < before).any())


def test_an_attack_does_not_serve_replicas() -> None:
    pair = wm.uncertainty.Replicas([wm.networks.MLP(3, 4, 2), wm.networks.MLP(3, 4, 2)])
    with pytest.raises(ValueError, match=r"^an attack is on one network, got 2 replicas: perturb them by a Search$"):
        AtCut(PGD(BALL, 5))(pair, POINTS, torch.zeros(20, dtype=torch.long), Rng.seeded(0))
