import numpy as np
import pytest
import torch
from torch import Tensor, nn

from digits import conv_net, foolbox_places
from linear_oracle import KINDS, Kind, known_distances
from widemargin import L2, OPEN, Linf
from widemargin.perturb.balls import UNIT
from widemargin.perturb.ddn import DDN, direction
from widemargin.perturb.line_search import line_search
from widemargin.rng import Rng, RowRng


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.classes == 2 and kind.name != "table"], ids=repr)
def test_for_two_linear_classes_the_answer_is_known(kind: Kind) -> None:
    network, cloud = kind.draw(100)
    places = DDN(kind.box)(
        network.requires_grad_(False), cloud.points, cloud.labels, RowRng(0, torch.arange(100))
    ).points
    kind.box.check(places)
    ratio = (places - cloud.points).flatten(1).norm(dim=1).double().numpy()
    ratio /= known_distances(network, cloud, L2, kind.box)
    # Never nearer than possible, and before bisection within a step of the radius.
    assert ratio.min() > 0.999
    assert np.quantile(ratio, 0.99) < 1.05


def test_on_a_small_conv_net_it_is_no_worse_than_foolbox() -> None:
    network, inputs, labels = conv_net()
    theirs = foolbox_places("DDNAttack")
    ours = DDN(UNIT, steps=100)(network, inputs, labels, RowRng(0, torch.arange(len(inputs)))).points
    assert bool((network(ours).argmax(1) != labels).all())
    ours, theirs = (line_search(network, inputs, labels, places) for places in (ours, theirs))
    far, known = ((places - inputs).flatten(1).norm(dim=1) for places in (ours, theirs))
    assert float(far.median()) < 1.01 * float(known.median())
    assert float((far / known).median()) < 1.01


def test_scale_does_not_matter() -> None:
    """Inputs a million times larger, logits a million times smaller: the same ways, a million times longer."""
    network, cloud = KINDS[4].draw(20)
    rng = RowRng(0, torch.arange(20))

    def scaled(points: Tensor) -> Tensor:
        return network(points * 2.0**-20) * 2.0**-20

    network.requires_grad_(False)
    once = DDN(OPEN, 30)(network, cloud.points, cloud.labels, rng).points
    again = DDN(OPEN, 30)(scaled, cloud.points * 2.0**20, cloud.labels, rng).points
    torch.testing.assert_close(again * 2.0**-20, once, rtol=1e-3, atol=1e-3)


def test_where_there_is_no_gradient_it_still_moves() -> None:
    """A step function: flat everywhere, so directions are drawn; whatever is near enough is found."""

    def steps(points: Tensor) -> Tensor:
        out = (points.abs().amax(1) > 0.5).float() + 0 * points.sum(1)
        return torch.stack([1 - out, out], 1)

    points, labels = torch.zeros(16, 2), torch.zeros(16, dtype=torch.int64)
    attack, rng = DDN(OPEN, 50), RowRng(0, torch.arange(16))
    found = attack(steps, points, labels, rng).points
    assert bool((Linf(0.0).norm(found) > 0.5).all())
    few = torch.tensor([3, 11])
    assert torch.equal(attack(steps, points[few], labels[few], rng.at(few)).points, found[few])


def test_a_classifier_without_a_boundary_leaves_points_where_they_are() -> None:
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([1.0, 0.0]))
    points = torch.full((4, 3), 0.5)
    assert torch.equal(
        DDN()(layer, points, torch.zeros(4, dtype=torch.int64), RowRng(0, torch.arange(4))).points, points
    )


def test_repr_makes_it_and_wrong_settings_are_refused() -> None:
    assert eval(repr(DDN(OPEN, 7))) == DDN(OPEN, 7)
    with pytest.raises(ValueError, match=r"^DDN.steps must be a whole number of at least 1, got 0"):
        DDN(steps=0)
    with pytest.raises(ValueError, match=r"^DDN.gamma must be in \(0, 1\), got 1.0"):
        DDN(gamma=1.0)


def test_a_direction_has_length_1_however_small_or_large_the_gradient() -> None:
    with Rng.seeded(0).as_global():
        gradient = torch.randn(5, 7)
    gradient[1] *= 1e-30
    gradient[2] *= 1e30
    gradient[3] = 0
    before = gradient.clone()
    found = direction(gradient, RowRng(0, torch.arange(5)), 0)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(5))
    same = torch.tensor([0, 1, 2, 4])
    torch.testing.assert_close(
        found[same], torch.nn.functional.normalize(gradient.double(), dim=1, eps=0)[same].float()
    )
    assert torch.equal(gradient, before)
