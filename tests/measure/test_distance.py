import copy
import inspect
import math

import numpy as np
import pytest
import torch
from torch import nn

from digits import conv_net
from exact_ratios import check, ratios
from linear_oracle import KINDS, NORMS, Kind, known_distances
from widemargin import L1, L2, OPEN, Dataset, Ensemble, Linf, Single, at_input
from widemargin.data.toy import FromSklearn
from widemargin.measure.accuracy import correct
from widemargin.measure.distance import NO_ATTACK, Distances, distances
from widemargin.measure.margin import margins
from widemargin.networks.mlp import MLP
from widemargin.perturb.balls import UNIT, Norm
from widemargin.perturb.bisected_apgd import BisectedAPGD
from widemargin.perturb.ddn import DDN
from widemargin.perturb.fab import ShortestFAB
from widemargin.perturb.fmn import FMN
from widemargin.rng import Rng
from widemargin.uncertainty.network import Network


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_for_linear_classifiers_the_answer_is_known(kind: Kind, norm: Norm) -> None:
    network, cloud = kind.draw(60)
    wrong = torch.arange(60) % 10 == 0
    labels = torch.where(wrong, (cloud.labels + 1) % kind.classes, cloud.labels)
    # The default where it is hardest, many classes and scales; elsewhere little is enough.
    little = (FMN(norm, kind.box, 10, targets=1),)
    attacks = None if kind.classes > 2 and kind.name == "table" else little
    found = distances(network, Dataset(cloud.points, labels), norm, kind.box, attacks)
    assert bool((found.distance[wrong] == 0).all())
    ratio = (found.distance.double().numpy() / known_distances(network, cloud, norm, kind.box))[~wrong.numpy()]
    assert ratio.min() > 0.999
    assert np.quantile(ratio, 0.99) < 1.01
    kind.box.check(found.places)
    for rows in (1, 7, 60):
        assert not correct(network, Dataset(found.places, labels), rows).any()


@pytest.mark.parametrize("norm", [Linf, L1])
def test_points_next_to_the_boundary_are_not_pushed_far_beyond_it(norm: Norm) -> None:
    """Some margins are a ten-thousandth here, where rounding counts."""
    kind = next(kind for kind in KINDS if kind.name == "image" and kind.classes == 10)
    network, cloud = kind.draw(100, seed=5)
    found = distances(network, cloud, norm, kind.box)
    ratio = found.distance.double().numpy() / known_distances(network, cloud, norm, kind.box)
    assert np.mean(ratio < 1.01) >= 0.99
    assert ratio.min() > 0.999


def moons() -> tuple[Network, Dataset]:
    cloud = FromSklearn("moons", count=60, noise=0.1).draw()
    with Rng.seeded(0).as_global():
        network = Single(at_input(MLP(2, 32, 32, 2)))
        optimizer = torch.optim.Adam(network.parameters(), 1e-2)
        for _ in range(150):
            optimizer.zero_grad()
            nn.functional.nll_loss(network(cloud.points), cloud.labels).backward()
            optimizer.step()
    return network, cloud


def test_in_the_plane_it_is_the_margin_that_the_grid_sees() -> None:
    network, cloud = moons()
    exact, found = margins(network, cloud), distances(network, cloud, L2, OPEN)
    known = np.isfinite(exact.margin) & (exact.margin > 0)
    assert known.sum() > 50
    ratio = found.distance.double().numpy()[known] / exact.margin[known]
    assert ratio.min() > 0.999
    assert np.median(ratio) < 1.02
    assert ratio.mean() < 1.02


FEW = (DDN(UNIT, 8), FMN(L2, UNIT, 8), BisectedAPGD(L2, UNIT, 5, 3))


def small(rows: int = 16) -> tuple[Network, Dataset]:
    with Rng.seeded(2).as_global():
        network = Single(at_input(MLP(4, 32, 3))).double()
        points = torch.rand(rows, 4, dtype=torch.float64)
    return network, Dataset(points, network(points).argmax(1))


@pytest.mark.parametrize("rows", [1, 15])
def test_a_point_does_not_depend_on_its_batch(rows: int) -> None:
    network, cloud = small(4 if rows == 1 else 16)
    once, again = (distances(network, cloud, L2, UNIT, FEW, rows=many) for many in (500, rows))
    # By rounding a place may need the first push outward, a millionth, in one batch and not in the other.
    torch.testing.assert_close(again.distance, once.distance, rtol=2e-6, atol=0)
    torch.testing.assert_close(again.places, once.places, rtol=1e-4, atol=1e-5)


def test_the_same_seed_finds_the_same_and_more_attacks_find_no_less() -> None:
    network, cloud = small()
    once, again = (distances(network, cloud, L2, UNIT, FEW, seed=3) for _ in range(2))
    assert torch.equal(once.distance, again.distance)
    assert torch.equal(once.by, again.by)
    alone = distances(network, cloud, L2, UNIT, FEW[:1], seed=3)
    # Places of several attacks go along the boundary in one batch, whose rows may be rounded otherwise.
    assert bool((once.distance <= 1.000001 * alone.distance).all())
    torch.testing.assert_close(once.distance[once.by == 0], alone.distance[once.by == 0], rtol=1e-6, atol=0)
    assert sum(once.found_by.values()) == int((once.distance < math.inf).sum()) > 5
    assert set(once.found_by) == set(map(repr, FEW))


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_every_place_is_as_far_as_it_says_in_the_box_and_wrong(norm: Norm) -> None:
    network, inputs, labels = conv_net(40)
    shifted = torch.where(torch.arange(40) < 4, (labels + 1) % 10, labels)
    found = distances(Single(at_input(network)), Dataset(inputs, shifted), norm, UNIT, (FMN(norm, UNIT, 20),))
    UNIT.check(found.places)
    torch.testing.assert_close(norm(0.0).norm(found.places - inputs), found.distance)
    for alone in range(40):
        assert int(network(found.places[alone : alone + 1]).argmax()) != int(shifted[alone])
    assert bool((found.distance[:4] == 0).all() and (found.by[:4] == NO_ATTACK).all())
    assert found.misclassified == 0.1
    assert found.unbroken == 0


def test_the_default_attacks_find_more_than_the_best_of_them() -> None:
    network, inputs, labels = conv_net(40)
    found = distances(Single(at_input(network)), Dataset(inputs, labels), L1)
    assert len(found.attacks) == 4
    assert found.unbroken == 0
    assert sum(count > 0 for count in found.found_by.values()) > 1
    alone = distances(Single(at_input(network)), Dataset(inputs, labels), L1, attacks=found.attacks[:1])
    # Rows of another batch may be rounded otherwise.
    assert bool((found.distance <= 1.001 * alone.distance).all())
    assert bool((found.distance < 0.99 * alone.distance).any())


def test_the_network_stays_as_it_is() -> None:
    with Rng.seeded(1).as_global():
        layers = [nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(), nn.Linear(8, 3)]
        network = Single(at_input(nn.Sequential(*layers)))
        cloud = Dataset(torch.randn(20, 2), torch.arange(20) % 3)
    network.train()
    before, chance = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    distances(network, cloud, Linf, OPEN, (FMN(Linf, OPEN, 5), ShortestFAB(Linf(1.0, OPEN), 2, 5)))
    assert all(module.training for module in network.modules())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())
    assert torch.equal(torch.get_rng_state(), chance)


def test_an_ensemble_is_measured_as_it_answers() -> None:
    with Rng.seeded(1).as_global():
        network = Ensemble([MLP(2, 8, 3) for _ in range(3)])
        points = torch.randn(20, 2)
    cloud = Dataset(points, network(points).argmax(1))
    found = distances(network, cloud, L2, OPEN, attacks := (FMN(L2, OPEN, 20),))
    reached = found.distance < math.inf
    assert reached.any()
    assert bool((network(found.places[reached]).argmax(1) != cloud.labels[reached]).all())
    assert found.attacks == attacks


def test_without_a_boundary_nothing_is_found() -> None:
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([1.0, 0.0]))
    cloud = Dataset(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1]))
    done: list[int] = []
    for norm in NORMS:
        found = distances(
            Single(at_input(layer)), cloud, norm, OPEN, (FMN(norm, OPEN, 10),), rows=3, on_progress=done.append
        )
        assert found.distance.tolist() == [math.inf] * 3 + [0.0]
        assert torch.equal(found.places, cloud.points)
        assert (found.unbroken, found.misclassified, found.mean) == (0.75, 0.25, math.inf)
    assert done == [3, 4] * 3


def test_the_distribution_is_of_all_points() -> None:
    distance = torch.tensor([0.0, 4.0, 1.0, math.inf, 2.0])
    nobody = torch.full((5,), NO_ATTACK)
    found = Distances(distance, torch.zeros(5, 2), nobody, L1, OPEN, (FMN(L1, OPEN),), 0)
    assert (found.n, found.min, found.median, found.mean) == (5, 0, 2, math.inf)
    assert found.quantiles == {0.05: 0, 0.25: 1, 0.5: 2, 0.75: 4, 0.95: math.inf}
    assert (found.misclassified, found.unbroken) == (0.2, 0.2)
    assert [found.accuracy(radius) for radius in (0, 1, 3, 9)] == [0.8, 0.6, 0.4, 0.2]
    assert found.of_right.tolist() == [4.0, 1.0, math.inf, 2.0]


def test_what_cannot_be_measured_is_refused() -> None:
    network, cloud = small(4)
    with pytest.raises(ValueError, match=r"^distances need at least one attack, got none"):
        distances(network, cloud, L2, UNIT, ())
    with pytest.raises(ValueError, match=r"^points must lie in the box \[0, 1\]"):
        distances(network, Dataset(cloud.points + 1, cloud.labels), L2)


def test_a_module_that_is_no_network_is_refused() -> None:
    # Without the types that are checked in tests alone.
    unchecked = inspect.unwrap(distances)
    with pytest.raises(ValueError, match=r"^the network must be a Network, got MLP: use Single\(at_input\(network\)\)"):
        unchecked(MLP(4, 3), small(4)[1], L2)


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_margins_of_a_table_are_exact_to_one_per_cent(norm: Norm) -> None:
    check(ratios("wine", norm, boxed=False, seed=0, rows=8))


class RoundedByBatch(nn.Module):
    """In larger batches the first class gains a little, as sums in another order may have it."""

    def __init__(self, network: nn.Module, larger: int) -> None:
        super().__init__()
        self.network, self.larger = network, larger

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        logits = self.network(inputs)
        gain = torch.tensor([1e-3, 0.0]) if len(inputs) > self.larger else torch.zeros(2)
        return logits + gain


def test_places_that_another_batch_takes_for_right_are_not_lost() -> None:
    cloud = FromSklearn("moons", count=60, noise=0.1).draw()
    with Rng.seeded(0).as_global():
        network = MLP(2, 2)
    network.requires_grad_(False)
    cloud = Dataset(cloud.points, network(cloud.points).argmax(1))
    first = Dataset(cloud.points[cloud.labels == 0], cloud.labels[cloud.labels == 0])
    # Both attacks' places are brought to the boundary in one batch, twice as large as that in which they were found.
    shifty = Single(at_input(RoundedByBatch(network, len(first))))
    found = distances(shifty, first, L2, OPEN, (FMN(L2, OPEN, 20), DDN(OPEN, 20)))
    assert found.unbroken == 0
