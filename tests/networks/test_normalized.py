"""Input normalisation: a layer of the network, and nothing to the ball."""

import pytest
import torch

from widemargin.data.dataset import Dataset
from widemargin.measure.certified import certified_radius
from widemargin.networks.mlp import FlatMLPSpec
from widemargin.networks.named import LeNetSpec
from widemargin.networks.normalized import NormalizedSpec
from widemargin.perturb.balls import OPEN, Linf
from widemargin.uncertainty.cuts import at_input, before_head
from widemargin.uncertainty.single import Single


def test_it_comes_before_the_same_network() -> None:
    spec = LeNetSpec(classes=3, channels=3, side=8)
    network = NormalizedSpec(spec, (0.5, 0.4, 0.3), (0.25, 0.2, 0.1)).build(torch.Generator().manual_seed(0))
    plain = spec.build(torch.Generator().manual_seed(0))
    images = torch.rand(2, 3, 8, 8)
    by_hand = torch.stack([(images[:, k] - (0.5, 0.4, 0.3)[k]) / (0.25, 0.2, 0.1)[k] for k in range(3)], 1)
    torch.testing.assert_close(network(images), plain(by_hand))
    cut = before_head(network)
    assert torch.equal(cut.head(cut.encoder(images)), network(images))


def test_a_certificate_is_in_the_units_of_the_data() -> None:
    """Of a linear network: dividing inputs by s divides radii by 1 / s."""
    spec = FlatMLPSpec((4, 2))
    points = torch.rand(3, 1, 2, 2)
    radii = []
    for std in (1.0, 0.5):
        module = NormalizedSpec(spec, (0.0,), (std,)).build(torch.Generator().manual_seed(0))
        network = Single(at_input(module))
        with torch.no_grad():
            network.head[1][1].layers[0].bias.zero_()  # type: ignore[index, union-attr]
            labels = network(points).argmax(1)
        radii.append(certified_radius(network, Dataset(points, labels, (0, 1)), Linf(9.0, OPEN)))
    # Without a bias the boundary goes through 0, and a scale leaves it there.
    torch.testing.assert_close(radii[0], radii[1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("mean", "std"), [((float("inf"),), (1.0,)), ((0.0,), (0.0,))])
def test_numbers_that_cannot_be(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="--mean must be numbers and --std numbers above 0"):
        NormalizedSpec(LeNetSpec(), mean, std)
