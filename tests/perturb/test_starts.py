from itertools import combinations

import pytest
import torch
from torch import Tensor

from linear_oracle import KINDS, NORMS
from widemargin import L1, OPEN, Box
from widemargin.networks.mlp import MLP
from widemargin.perturb.balls import Norm
from widemargin.perturb.lead import Lead
from widemargin.perturb.starts import corners, from_afar, linear_boundary
from widemargin.rng import Rng, RowRng


def small(rows: int = 6, features: int = 4) -> tuple[MLP, Tensor, Lead]:
    with Rng.seeded(5).as_global():
        network = MLP(features, 16, 3).double().requires_grad_(False)
        inputs = torch.rand(rows, features, dtype=torch.float64)
    return network, inputs, Lead(network(inputs).argmax(1))


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_where_all_linear_models_are_one_every_start_is_the_shortest_step(norm: Norm) -> None:
    network, cloud = KINDS[0].draw(8)
    network, inputs, labels = network.requires_grad_(False), cloud.points.flatten(1), cloud.labels
    rivals = network(inputs).scatter(1, labels[:, None], -torch.inf).argmax(1)
    ball, lead = norm(0.0, OPEN), Lead(labels, rivals)
    here = torch.zeros_like(inputs)
    step = linear_boundary(network, inputs, lead, ball, here, ball.norm(here))
    row = torch.arange(8).repeat(5)
    drawn = RowRng(0, torch.arange(40)).normal(inputs.shape[1]).to(inputs)
    steps = from_afar(network, inputs[row], lead.at(row), ball, drawn, ball.norm(step))
    torch.testing.assert_close(steps, step[row], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_starts_of_a_point_do_not_depend_on_the_others(norm: Norm) -> None:
    network, inputs, lead = small()
    ball, distance = norm(0.0, Box(-1.0, 2.0)), torch.tensor([0.1, 1e-3, 0.3, 0.2, 5.0, 0.1], dtype=torch.float64)
    rng = RowRng(0, torch.arange(18))

    def begun(points: Tensor) -> Tensor:
        row = torch.cat([points + 6 * start for start in range(3)])
        drawn = rng.at(row).normal(4).to(inputs)
        return from_afar(network, inputs[row % 6], lead.at(row % 6), ball, drawn, distance[points]).view(3, -1, 4)

    together, alone = begun(torch.arange(6)), begun(torch.tensor([4, 1]))
    torch.testing.assert_close(alone, together[:, [4, 1]])
    assert float(together.std(0).max()) > 0.01


def every_corner(point: Tensor, box: Box, radius: float) -> list[Tensor]:
    """One after the other: all moves of one feature, and the middle between any two of those."""
    single = []
    for feature in range(len(point)):
        for sign in (1.0, -1.0):
            move = torch.zeros_like(point)
            move[feature] = sign * radius
            single.append(box.clamp(move[None], point[None])[0])
    return single + [(first + second) / 2 for first, second in combinations(single, 2)]


@pytest.mark.parametrize("box", [OPEN, Box(0.0, 1.0), Box(0.0, 1.0).holding((2,))], ids=repr)
def test_corners_are_the_best_of_all(box: Box) -> None:
    network, inputs, lead = small()
    radius = torch.linspace(0.2, 2.0, 6, dtype=torch.float64)
    found = corners(network, inputs, lead, L1(0.0, box), radius, 5).view(5, 6, 4)
    for i, point in enumerate(inputs):
        every = torch.stack(every_corner(point, box, float(radius[i])))
        leads = Lead(lead.labels[i].expand(len(every)))(network(point + every))
        of_found = Lead(lead.labels[i].expand(5))(network(point + found[:, i]))
        torch.testing.assert_close(of_found, leads.topk(5).values)
        assert float(torch.cdist(found[:, i], every, p=1).amin(1).max()) < 1e-9
    assert bool((found.abs().sum(2) <= radius + 1e-9).all())
    for corner in found:
        box.check(inputs + corner)
        assert bool(box.contains(inputs + corner, inputs).all())
