"""The oracle against obvious answers, and `distances` against the oracle."""

import numpy as np
import pytest
import torch
from torch import nn

from exact_margins import exact_margins, least_distance
from linear_oracle import NORMS, shortest_climb
from widemargin import L1, L2, OPEN, Box, Dataset, Linf, Single, at_input
from widemargin.networks.mlp import MLP
from widemargin.perturb.balls import UNIT, Norm
from widemargin.rng import Rng

ORDER = {Linf: np.inf, L2: 2, L1: 1}


def drawn() -> tuple[Single, Dataset]:
    """A network of the plane that gives both answers."""
    with Rng.seeded(4).as_global():
        network, points = MLP(2, 6, 2).double(), torch.rand(60, 2).double()
    last = [layer for layer in network.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        lead = network(points).diff(dim=1)
        last.bias[1] -= lead.median()
        return Single(at_input(network)), Dataset(points, network(points).argmax(1))


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
@pytest.mark.parametrize("box", [OPEN, UNIT], ids=repr)
def test_the_oracle_sees_what_a_fine_grid_sees(norm: Norm, box: Box) -> None:
    network, cloud = drawn()
    axis = torch.linspace(*((0, 1) if box is UNIT else (-2, 3)), 801, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    with torch.no_grad():
        answers = network(grid).argmax(1)
    exact = exact_margins(network, cloud, 6, norm, box)
    for point, label, margin in zip(cloud.points, cloud.labels, exact, strict=False):
        seen = np.linalg.norm((grid[answers != label] - point).numpy(), ORDER[norm], axis=1).min()
        assert 0 <= seen - margin < 4 * float(axis[1] - axis[0])


def test_least_distances_are_those_of_known_planes() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        slope, room = rng.normal(size=5), rng.uniform(size=5)
        needed = 0.5 * float(np.abs(slope) @ room)
        rows = np.concatenate([slope[None], -np.eye(5), np.eye(5)])
        found = least_distance(rows, np.concatenate([[needed], -room, -room]))
        assert found is not None
        assert np.linalg.norm(found) == pytest.approx(shortest_climb(np.abs(slope), room, needed, L2), rel=1e-6)
    assert least_distance(np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([1.0, 1.0])) is None
