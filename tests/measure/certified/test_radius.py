import copy
from itertools import product
from math import inf

import pytest
import torch
from torch import nn

from certified_cases import MAKERS, NORMS, drawn, nearest_wrong, normal
from widemargin import L2, OPEN, Dataset, Linf
from widemargin.measure.certified import certified, certified_radius
from widemargin.perturb.balls import UNIT, Box


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", MAKERS)
def test_no_attack_succeeds_within_a_certified_radius(name: str, norm: type) -> None:
    positive = 0
    for seed in range({"mlp": 3, "residual": 2}.get(name, 1)):
        network, cloud = drawn(name, seed)
        box = (UNIT, OPEN, Box((0.0,) * cloud.points[0].numel(), 1.5))[seed]
        radius = certified_radius(network, cloud, norm(1.0, box))
        attacked = nearest_wrong(network, cloud, norm(1.0, box), seed)
        assert (radius <= attacked).all(), (seed, radius, attacked)
        positive += int((radius > 1e-3).sum())
    assert positive > 0


@pytest.mark.parametrize("norm", NORMS)
def test_a_box_can_only_help(norm: type) -> None:
    for name in ("mlp", "residual", "norms"):
        network, cloud = drawn(name, 1)
        free, boxed = (certified(network, cloud, norm(0.05, box)) for box in (OPEN, UNIT))
        assert (boxed | ~free).all()


@pytest.mark.parametrize("norm", NORMS)
def test_exact_for_a_linear_network(norm: type) -> None:
    weight, points = normal(4, 5, seed=1), normal(20, 5, seed=2)
    layer = nn.Linear(5, 4).double()
    layer.weight.data.copy_(weight)
    logits = layer(points).detach()
    labels = logits.argmax(1)
    # Two layers with no bend between them are still one line.
    for network in (layer, nn.Sequential(layer, nn.Flatten(), nn.Linear(4, 4).double())):
        if network is not layer:
            network[2].weight.data.copy_(2 * torch.eye(4))
            network[2].bias.data.zero_()
        steep = norm(1.0).dual_norm((weight[labels][:, None] - weight[None]).flatten(0, 1)).view(20, 4)
        distance = (logits.gather(1, labels[:, None]) - logits) / steep
        true = distance.nan_to_num(inf).scatter(1, labels[:, None], inf).amin(1)
        found = certified_radius(network, Dataset(points, labels), norm(100.0, OPEN))
        assert torch.allclose(found, true, atol=1e-4, rtol=1e-4)
        assert (found <= true).all()


def test_exact_where_a_concave_lead_is_lowest_at_an_end() -> None:
    """One input, a hidden layer, and a lead that falls with every ReLU: all chords touch at the ends together."""
    weight, bias = normal(6, 1, seed=3), normal(6, seed=4)
    network = nn.Sequential(nn.Linear(1, 6), nn.ReLU(), nn.Linear(6, 2)).double()
    network[0].weight.data.copy_(weight)
    network[0].bias.data.copy_(bias)
    network[2].weight.data.copy_(torch.stack([torch.zeros(6), normal(6, seed=5).abs()]))
    network[2].bias.data.copy_(torch.tensor([4.0, 0.0]))
    points = torch.linspace(-0.5, 0.5, 7, dtype=torch.float64)[:, None]
    found = certified_radius(network, Dataset(points, torch.zeros(7, dtype=torch.int64)), Linf(100.0, OPEN))
    grid = torch.linspace(-20, 20, 400_001, dtype=torch.float64)[:, None]
    with torch.no_grad():
        wrong = grid[network(grid).argmax(1) == 1]
    true = (points - wrong.T).abs().amin(1)
    assert (found <= true + 1e-4).all()
    assert (found >= 0.975 * true).all()


def test_exact_for_one_relu_by_its_corners() -> None:
    weight = normal(1, 4, seed=7)
    network = nn.Sequential(nn.Linear(4, 1), nn.ReLU(), nn.Linear(1, 2)).double()
    network[0].weight.data.copy_(weight)
    network[2].weight.data.copy_(torch.tensor([[0.0], [1.0]]))
    network[2].bias.data.copy_(torch.tensor([1.0, 0.0]))
    points = 0.1 * normal(5, 4, seed=8)
    cloud = Dataset(points, torch.zeros(5, dtype=torch.int64))
    corners = torch.tensor(list(product((-1.0, 1.0), repeat=4)), dtype=torch.float64)
    for radius in (0.1, 0.2, 0.3, 0.5, 1.0):
        with torch.no_grad():
            true = (network((points[:, None] + radius * corners).flatten(0, 1)).argmax(1) == 0).view(5, -1).all(1)
        assert torch.equal(certified(network, cloud, Linf(radius, OPEN)), true)


def test_monotone_in_the_radius() -> None:
    for name in ("mlp", "residual", "norms"):
        network, cloud = drawn(name, 0)
        answers = torch.stack([certified(network, cloud, Linf(r)) for r in (0.0, 0.01, 0.03, 0.1)])
        assert (answers[1:] <= answers[:-1]).all()
        radius = certified_radius(network, cloud, Linf(1.0))
        assert all(
            bool(certified(network, Dataset(point[None], label[None]), Linf(0.7 * float(r)))[0])
            for point, label, r in zip(cloud.points, cloud.labels, radius, strict=True)
        )


def test_a_point_does_not_depend_on_its_batch_and_the_network_stays_as_it_is() -> None:
    network, cloud = drawn("residual", 0)
    network.train()
    network.conv1.eval()
    before, modes = copy.deepcopy(network.state_dict()), [module.training for module in network.modules()]
    done: list[int] = []
    together = certified_radius(network, cloud, L2(1.0), done.append)
    assert done == [1, 2, 3, 4]
    for row in range(4):
        one = Dataset(cloud.points[row : row + 1], cloud.labels[row : row + 1])
        assert torch.equal(certified_radius(network, one, L2(1.0)), together[row : row + 1])
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert modes == [module.training for module in network.modules()]
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())


def test_a_point_classified_wrong_has_radius_0() -> None:
    network, cloud = drawn("mlp", 0)
    wrong = Dataset(cloud.points, (cloud.labels + 1) % 3)
    assert not certified_radius(network, wrong, Linf(1.0)).any()
    assert not certified(network, wrong, Linf(0.0)).any()


def test_rounding_certifies_nobody() -> None:
    """Large terms cancel: in single precision the network itself does not know who leads."""
    generator = torch.Generator().manual_seed(1)
    proven = 0
    for scale in (1e2, 1e4, 1e6):
        first, last = nn.Linear(20, 30), nn.Linear(30, 2)
        with torch.no_grad():
            for layer in (first, last):
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator))
            first.bias.fill_(scale)
            last.weight[1] = last.weight[0] + 1e-3 * last.weight[1]
            points = torch.randn(25, 20, generator=generator)
            network = nn.Sequential(first, nn.ReLU(), last)
            last.bias[1] += (network(points)[:, 0] - network(points)[:, 1]).median()
            labels = network(points).argmax(1)
            radius = 1e-3
            flags = certified(network, Dataset(points, labels), Linf(radius, OPEN))
            # The linear part decides: its worst corner, a little within, as single precision sees it.
            slope = ((last.weight[0] - last.weight[1]).double() @ first.weight.double()).sign().float()
            sign = (labels == 0).float()[:, None] * 2 - 1
            noise = torch.rand(200, 1, 20, generator=generator) * 2 - 1
            moved = points + radius * torch.cat([(-sign * slope)[None], noise.sign() * slope.abs() * sign.abs()])
            answers = network(moved.flatten(0, 1)).argmax(1).view(len(moved), -1)
            assert (answers == labels)[:, flags].all()
            proven += int(flags.sum())
    assert proven > 5
