import numpy as np
import pytest
import torch
from torch import Tensor

from linear_oracle import KINDS, NORMS, Kind, known_distances
from widemargin import L2, OPEN
from widemargin.perturb.balls import Norm
from widemargin.perturb.line_search import line_search
from widemargin.perturb.refine import refine
from widemargin.rng import Rng

CENTERS = Rng.seeded(2).uniform(torch.empty(40, 5)) - 0.5


LABELS = torch.zeros(40, dtype=torch.int64)


def sphere(points: Tensor) -> Tensor:
    """Class 0 within distance 2 of the origin."""
    out = (points.flatten(1) ** 2).sum(1) - 4
    return torch.stack([-out, out], 1)


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
@pytest.mark.parametrize("kind", KINDS[:1] + KINDS[2:3] + KINDS[4:5], ids=repr)
def test_from_any_wrong_place_of_two_classes_the_nearest_is_reached(kind: Kind, norm: Norm) -> None:
    network, cloud = kind.draw(80)
    other = torch.stack([(cloud.labels != label).nonzero()[0, 0] for label in cloud.labels])
    ball = norm(0.0, kind.box)
    found = refine(network.requires_grad_(False), cloud.points, cloud.labels, cloud.points[other], ball)
    known = known_distances(network, cloud, norm, kind.box)
    ratio = ball.norm(found - cloud.points).double().numpy() / known
    assert ratio.min() > 0.999
    assert np.quantile(ratio, 0.99) < 1.01


def test_on_a_curved_boundary_it_comes_nearer_too() -> None:
    nearest = 2 - CENTERS.norm(dim=1)
    places = CENTERS + 9 * Rng.seeded(3).normal(torch.empty(40, 5))
    found = refine(sphere, CENTERS, LABELS, places, L2(0.0, OPEN), rounds=30)
    ratio = (found - CENTERS).norm(dim=1) / nearest
    before = (line_search(sphere, CENTERS, LABELS, places) - CENTERS).norm(dim=1) / nearest
    assert float(before.median()) > 1.1
    assert float(ratio.median()) < 1.001
    assert float(ratio.min()) > 0.999
