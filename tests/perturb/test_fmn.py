from dataclasses import replace

import numpy as np
import pytest
import torch

from digits import conv_net, foolbox_places
from linear_oracle import KINDS, NORMS, Kind, known_distances
from widemargin import L1, L2, OPEN, Linf
from widemargin.networks.mlp import MLP
from widemargin.perturb.balls import UNIT, Norm
from widemargin.perturb.fmn import FMN, _Descent, nearest_classes
from widemargin.perturb.line_search import line_search
from widemargin.perturb.losses import margin
from widemargin.rng import Rng, RowRng

THEIRS = {Linf: "LInfFMNAttack", L2: "L2FMNAttack", L1: "L1FMNAttack"}


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name != "table"], ids=repr)
def test_for_linear_classes_the_answer_is_known(kind: Kind, norm: Norm) -> None:
    network, cloud = kind.draw(60)
    attack = FMN(norm, kind.box, targets=1)
    places = attack(network.requires_grad_(False), cloud.points, cloud.labels, RowRng(0, torch.arange(60))).points
    kind.box.check(places)
    ratio = norm(0.0).norm(places - cloud.points).double().numpy() / known_distances(network, cloud, norm, kind.box)
    assert ratio.min() > 0.999
    assert np.quantile(ratio, 0.99) < 1.02


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_on_a_small_conv_net_it_is_no_worse_than_foolbox(norm: Norm) -> None:
    network, inputs, labels = conv_net()
    theirs = foolbox_places(THEIRS[norm])
    ours = FMN(norm)(network, inputs, labels, RowRng(0, torch.arange(len(inputs)))).points
    # On the boundary itself the last bits decide, and a network may round otherwise where no gradient is asked for.
    assert float(margin(network(ours), labels).max()) < 1e-4
    found = [line_search(network, inputs, labels, places) for places in (ours, theirs)]
    far, known = (norm(0.0).norm(places - inputs) for places in found)
    known = torch.where(known > 0, known, torch.inf)
    assert float(far.median()) < 1.01 * float(known.median())
    assert float((far / known).median()) < 1.01


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_more_targets_come_nearer(norm: Norm) -> None:
    network, inputs, labels = conv_net()
    rng = RowRng(0, torch.arange(len(inputs)))
    one, three = (FMN(norm, UNIT, 40, targets=targets)(network, inputs, labels, rng).points for targets in (1, 3))
    far, near = (norm(0.0).norm(places - inputs) for places in (one, three))
    # Three times the rows at once may be rounded otherwise, and the ways part.
    assert bool((near[far > 0] <= 1.01 * far[far > 0]).all())
    assert bool((near[far > 0] < 0.99 * far[far > 0]).any())


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_more_starts_come_nearer_and_do_not_depend_on_the_batch(norm: Norm) -> None:
    with Rng.seeded(3).as_global():
        network, inputs = MLP(4, 16, 3).double().requires_grad_(False), torch.rand(20, 4, dtype=torch.float64)
    labels, rng = network(inputs).argmax(1), RowRng(0, torch.arange(20))
    one, many = (
        FMN(norm, UNIT, 30, targets=2, starts=starts)(network, inputs, labels, rng).points for starts in (1, 6)
    )
    UNIT.check(many)
    far, near = (norm(0.0).norm(places - inputs) for places in (one, many))
    # More rows at once may be rounded otherwise, and the ways part.
    assert bool((near[far > 0] <= 1.01 * far[far > 0]).all())
    assert bool((near[far > 0] < 0.9 * far[far > 0]).any())
    some = torch.tensor([3, 17])
    alone = FMN(norm, UNIT, 30, targets=2, starts=6)(network, inputs[some], labels[some], rng.at(some)).points
    torch.testing.assert_close(alone, many[some], rtol=1e-6, atol=1e-6)


def test_where_it_is_flat_every_start_goes_its_own_way() -> None:
    queries: list[torch.Tensor] = []

    def flat(points: torch.Tensor) -> torch.Tensor:
        queries.append(points.detach())
        return torch.stack([points.sum(1) * 0 + 1, points.sum(1) * 0], 1)

    inputs = torch.zeros(1, 3)
    FMN(L2, OPEN, 4, targets=1, starts=8)(flat, inputs, torch.zeros(1, dtype=torch.long), RowRng(0, torch.arange(1)))
    walked = next(points for points in reversed(queries) if len(points) == 8)
    assert len({tuple(row) for row in walked.tolist()}) == 8


def test_in_time_no_start_is_farther_away_than_the_nearest_place_of_all() -> None:
    queries: list[torch.Tensor] = []

    def two_hollows(points: torch.Tensor) -> torch.Tensor:
        queries.append(points.detach())
        lead = torch.maximum(points[:, 0] - 3, -points[:, 0] - 1)
        return torch.stack([torch.zeros_like(lead), lead], 1)

    inputs, labels = torch.tensor([[0.9, 0.0]]), torch.zeros(1, dtype=torch.long)
    FMN(L2, OPEN, targets=1, starts=16)(two_hollows, inputs, labels, RowRng(0, torch.arange(1)))
    # The boundary is 1.9 away on one side and 2.1 on the other.
    walked = [(points - inputs).norm(dim=1) for points in queries if len(points) == 16]
    assert any(float(far.max()) > 2.05 for far in walked)
    assert float(walked[-1].max()) < 1.92


@pytest.mark.parametrize(("norm", "exact"), [(Linf, 3.1), (L2, (3.1**2 + 0.09**2) ** 0.5), (L1, 3.19)])
def test_a_boundary_far_beyond_a_plateau_is_found(norm: Norm, exact: float) -> None:
    def plateau(points: torch.Tensor) -> torch.Tensor:
        # At the point the boundary seems to be .1 away along the first feature, which comes to -.1 and no farther.
        along, across = points[:, 0], points[:, 1]
        lead = -1 + (10 * along).relu() - (10 * along - 0.9).relu() + (across - 3).relu()
        return torch.stack([torch.zeros_like(lead), lead], 1)

    inputs = torch.full((5, 2), 1e-3)
    attack = FMN(norm, OPEN, targets=1, starts=16)
    distance = attack(plateau, inputs, torch.zeros(5, dtype=torch.long), RowRng(0, torch.arange(5))).distance
    assert distance.tolist() == pytest.approx([exact] * 5, rel=5e-3)


@pytest.mark.parametrize(("norm", "exact"), [(Linf, 20.0), (L2, 20.05), (L1, 20.05)])
def test_a_boundary_beyond_a_flat_plain_is_found(norm: Norm, exact: float) -> None:
    def plain(points: torch.Tensor) -> torch.Tensor:
        lead = (points.abs() - 20).relu().sum(1) - 0.05
        return torch.stack([torch.zeros_like(lead), lead], 1)

    attack = FMN(norm, OPEN, targets=1, starts=16)
    distance = attack(plain, torch.zeros(5, 3), torch.zeros(5, dtype=torch.long), RowRng(0, torch.arange(5))).distance
    assert distance.tolist() == pytest.approx([exact] * 5, rel=5e-3)


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_many_starts_along_a_single_feature(norm: Norm) -> None:
    def beyond_two(points: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.zeros_like(points), points.abs() - 2], 1)

    attack, inputs = FMN(norm, OPEN, targets=1, starts=16), torch.tensor([[0.5], [-1.0]])
    distance = attack(beyond_two, inputs, torch.tensor([0, 0]), RowRng(0, torch.arange(2))).distance
    assert distance.tolist() == pytest.approx([1.5, 1.0], rel=1e-2)


def test_of_each_hollow_the_nearest_descends_again_first() -> None:
    ball, starts = L2(0.0, OPEN), 5
    inputs = torch.zeros(2 * starts, 2)
    labels = torch.zeros(2 * starts, dtype=torch.long)
    # Of two points, start by start: of the first, three in one hollow, one in another, one that found nothing.
    places = torch.tensor([[1.0, 0], [0, 1], [1.01, 0], [0, 2], [1.02, 0], [0, 3], [-2, 0], [0, -4], [0, 0], [0, 0]])
    begun = _Descent.at(ball, inputs, labels, labels, RowRng(0, torch.arange(2 * starts)), places, torch.ones(10))
    begun.see(ball, places, places.norm(dim=1) > 0)
    begun = replace(begun, starts=starts)
    first, second = begun.places[begun.hollows(ball, 3)].view(3, 2, 2).unbind(1)
    assert first.tolist() == [pytest.approx(place) for place in ([1.0, 0.0], [-2.0, 0.0], [1.01, 0.0])]
    assert second.tolist() == [[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]]


def test_classes_are_sorted_by_their_distance() -> None:
    kind = KINDS[1]
    network, cloud = kind.draw(30)
    for norm in NORMS:
        order = nearest_classes(network, cloud.points, cloud.labels, norm(0.0, kind.box))
        assert order.shape == (30, 9)
        assert not bool((order == cloud.labels[:, None]).any())
        assert all(len(set(row)) == 9 for row in order.tolist())


def test_repr_makes_it_and_wrong_settings_are_refused() -> None:
    attack = FMN(L1, OPEN, 7, targets=2, starts=3)
    assert eval(repr(attack)) == attack
    assert (attack.name, FMN(L1).name) == ("FMN-T", "FMN")
    with pytest.raises(ValueError, match=r"^FMN.targets must be a whole number of at least 0, got -1"):
        FMN(L2, targets=-1)
    with pytest.raises(ValueError, match=r"^FMN.starts must be a whole number of at least 1, got 0"):
        FMN(L2, starts=0)
    with pytest.raises(ValueError, match=r"^FMN.steps must be a whole number of at least 1, got 0"):
        FMN(L2, steps=0)
