import copy

import numpy as np
import pytest
import torch
from torch import nn

from digits import conv_net
from linear_oracle import KINDS, NORMS, Kind, inner_points, known_distances, linear
from widemargin import L1, L2, OPEN, Box
from widemargin.perturb.balls import UNIT, Norm
from widemargin.perturb.bisected_apgd import BisectedAPGD
from widemargin.perturb.fmn import FMN
from widemargin.perturb.line_search import Nearest
from widemargin.rng import RowRng


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name != "table"], ids=repr)
def test_for_linear_classes_the_answer_is_known(kind: Kind, norm: Norm) -> None:
    network, cloud = kind.draw(60)
    attack = BisectedAPGD(norm, kind.box)
    places = attack(network.requires_grad_(False), cloud.points, cloud.labels, RowRng(0, torch.arange(60))).points
    kind.box.check(places)
    ratio = norm(0.0).norm(places - cloud.points).double().numpy() / known_distances(network, cloud, norm, kind.box)
    assert ratio.min() > 0.999
    # Of several classes it climbs whichever leads, which need not be the nearest.
    assert np.quantile(ratio, 0.9 if kind.classes == 2 else 0.5) < 1.03


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_it_finds_only_what_is_nearer_than_what_is_known(norm: Norm) -> None:
    network, inputs, labels = conv_net(40)
    rng, ball = RowRng(0, torch.arange(40)), norm(0.0)
    known = Nearest(ball, inputs)
    known.see(FMN(norm, UNIT, 15)(network, inputs, labels, rng).points, torch.arange(40) % 4 > 0)
    before = known.distance.clone()
    places = BisectedAPGD(norm).nearer_than(known, network, labels, rng)
    found = (places != inputs).flatten(1).any(1)
    assert bool((network(places[found]).argmax(1) != labels[found]).all())
    assert bool((ball.norm(places - inputs)[found] < before[found]).all())
    # Nothing was known of every fourth.
    assert bool(found[::4].all())
    assert int(found.sum()) > 15
    assert torch.equal(known.distance, before)


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_a_point_does_not_depend_on_its_batch(norm: Norm) -> None:
    network, inputs, labels = conv_net(12)
    network = copy.deepcopy(network).double()
    points, numbers = inputs.double(), torch.arange(12)
    together = BisectedAPGD(norm)(network, points, labels, RowRng(3, numbers)).points
    for some in (slice(0, 1), slice(5, 9)):
        alone = BisectedAPGD(norm)(network, points[some], labels[some], RowRng(3, numbers[some])).points
        torch.testing.assert_close(alone, together[some], rtol=0, atol=1e-6)


@pytest.mark.parametrize("box", [UNIT, OPEN], ids=repr)
def test_without_a_boundary_nothing_is_found(box: Box) -> None:
    layer = nn.Linear(3, 2).requires_grad_(False)
    layer.weight.zero_()
    layer.bias.copy_(torch.tensor([1.0, 0.0]))
    inputs, labels = torch.rand(4, 3), torch.zeros(4, dtype=torch.int64)
    for norm in NORMS:
        assert torch.equal(
            BisectedAPGD(norm, box, steps=3)(layer, inputs, labels, RowRng(0, torch.arange(4))).points, inputs
        )


def test_repr_makes_it_and_wrong_settings_are_refused() -> None:
    attack = BisectedAPGD(L1, OPEN, 7, 2)
    assert eval(repr(attack)) == attack
    assert attack.name == "bisected APGD"
    with pytest.raises(ValueError, match=r"^BisectedAPGD.trials must be a whole number of at least 1, got 0"):
        BisectedAPGD(L2, trials=0)
    with pytest.raises(ValueError, match=r"^BisectedAPGD.steps must be a whole number of at least 1, got 0"):
        BisectedAPGD(L2, steps=0)


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_a_box_of_each_feature_s_own_when_all_points_are_broken_at_once(norm: Norm) -> None:
    _, classify = linear(2)
    inputs, labels = inner_points(classify, 5)
    attack = BisectedAPGD(norm, Box((0.0,) * 12, (1.0,) * 12), steps=10, trials=3)
    places = attack(classify, inputs, labels, RowRng(0, torch.arange(5))).points
    assert bool((classify(places).argmax(1) != labels).all())
