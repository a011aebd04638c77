import numpy as np
import pytest
import torch

import widemargin as wm
from widemargin.uncertainty.replicas import Replicas
from widemargin_studies import pictorial


def vertical(at: float) -> wm.networks.MLP:
    """A network whose boundary is the line x = at."""
    network = wm.networks.MLP(2, 2)
    (layer,) = network.layers
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[-2.0, 0.0], [2.0, 0.0]]))  # type: ignore[operator]
        layer.bias.copy_(torch.tensor([2.0 * at, -2.0 * at]))  # type: ignore[operator]
    return network


def test_the_best_boundary_of_two_pairs_is_the_axis() -> None:
    cloud = pictorial.TwoPairs(0.2, 0.7).draw()
    np.testing.assert_allclose(cloud.best_margins(), [0.2, 0.7, 0.2, 0.7], rtol=1e-6)
    np.testing.assert_allclose(cloud.points[:2] * torch.tensor([-1.0, 1.0]), cloud.points[2:])


@pytest.mark.parametrize("norm", pictorial.NORMS)
@pytest.mark.parametrize("radius", pictorial.RADII)
def test_on_a_straight_boundary_ldp_goes_all_the_way_and_udp_stops_there(norm: str, radius: float) -> None:
    cloud, at = pictorial.PAIRS.draw(), torch.tensor([0.0, 0.05])
    network = Replicas([vertical(float(x)) for x in at])
    ldp, udp = (
        pictorial.moved(network, pictorial.SEARCHES[norm, radius, name], cloud)[..., 0] for name in ("LDP", "UDP")
    )
    to_go = at[:, None] - cloud.points[:, 0]
    np.testing.assert_allclose(ldp - cloud.points[:, 0], radius * to_go.sign(), atol=1e-5)
    reached = cloud.points[:, 0] + to_go.clamp(-radius, radius)
    np.testing.assert_allclose(udp, reached, atol=pictorial.STEP + 1e-5)


def test_beyond_counts_only_what_is_across() -> None:
    start = np.array([[-0.2, 0.0], [0.2, 0.0]])
    end = np.array([[[0.1, 0.0], [0.05, 0.0]]])
    found = pictorial.Moves(start, np.array([0, 1]), end, np.array([[-0.3, 0.4]]))
    np.testing.assert_allclose(found.beyond_best, [[0.1, 0.0]])
    np.testing.assert_allclose(found.beyond_network, [[0.3, 0.0]])
    np.testing.assert_allclose(found.length, [[0.3, 0.15]])


def test_landscapes_from_the_lead() -> None:
    lead = np.array([-30.0, -1.0, 0.0, 2.0])
    logits = torch.tensor(np.stack([np.zeros_like(lead), lead], -1))
    for label in (0, 1):
        loss = torch.nn.functional.cross_entropy(logits, torch.full((4,), label), reduction="none")
        np.testing.assert_allclose(pictorial.loss_of(label, lead), loss, rtol=1e-9, atol=1e-12)
    expected = torch.distributions.Categorical(logits=logits).entropy()
    np.testing.assert_allclose(pictorial.entropy_of(lead), expected, rtol=1e-6, atol=1e-12)
