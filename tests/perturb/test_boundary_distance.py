import torch

import widemargin as wm
from lines import lead, line
from widemargin.perturb.boundary_distance import WithBoundaryDistance, projection
from widemargin.rng import Rng

POINTS = torch.randn(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LABELS = torch.zeros(30, dtype=torch.int64)


def test_a_projection_ends_on_a_straight_boundary_unless_it_is_too_far() -> None:
    network, ball = line([3.0, 4.0], 0.5), wm.L2(0.4, wm.OPEN)
    true = lead(network, POINTS).abs() / 5
    moved = projection(ball, 3)(network, POINTS, LABELS, Rng.seeded(0))
    torch.testing.assert_close(moved.distance, true.clamp_max(0.4), rtol=0, atol=1e-6)


def test_points_are_those_of_the_search_and_distances_those_to_the_boundary() -> None:
    network, search = line([3.0, 4.0]), wm.udp(wm.L2(0.1, wm.OPEN), 0.05, 2).perturb
    assert isinstance(search, wm.perturb.Search)
    to_boundary = projection(wm.L2(10.0, wm.OPEN), 3)
    both = WithBoundaryDistance(search, to_boundary)
    moved = both(network, POINTS, LABELS, Rng.seeded(0))
    assert torch.equal(moved.points, search(network, POINTS, LABELS, Rng.seeded(0)).points)
    torch.testing.assert_close(moved.distance, lead(network, POINTS).abs() / 5, rtol=0, atol=1e-6)
    assert both.takes_unlabelled
