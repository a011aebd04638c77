import pytest
import torch

from widemargin.networks.mlp import MLP, FlatMLPSpec, MLPSpec, StackedMLP
from widemargin.uncertainty.cuts import before_head


def test_an_mlp_is_linear_layers_with_relu_between() -> None:
    network = MLP(3, 5, 4, 2)
    points = torch.linspace(-1, 1, 12).view(4, 3)
    first, second, last = network.layers
    torch.testing.assert_close(network(points), last(second(first(points).relu()).relu()))


@pytest.mark.parametrize("widths", [(), (3,), (3, 0, 2)])
def test_widths_that_make_no_network_are_refused(widths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^an MLP needs at least an input and an output width, all >= 1, got "):
        MLP(*widths)


def test_weights_are_drawn_from_the_callers_generator_within_torchs_bounds() -> None:
    before = torch.get_rng_state()
    with torch.random.fork_rng():
        first, again, other = (MLPSpec((16, 64, 2)).build(torch.Generator().manual_seed(s)) for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    for a, b, c in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)
    assert 0.24 < first.layers[0].weight.abs().max() <= 1 / 4
    assert 0.11 < first.layers[1].weight.abs().max() <= 1 / 8
    assert first.layers[1].bias.abs().max() <= 1 / 8


@pytest.mark.parametrize("widths", [(3, 2), (3, 5, 4, 2)])
def test_stacking_and_splitting_gives_the_networks_back(widths: tuple[int, ...]) -> None:
    networks = [MLP(*widths).double() for _ in range(4)]
    stack = StackedMLP(networks)
    for network, again in zip(networks, stack.split(), strict=True):
        assert again.state_dict().keys() == network.state_dict().keys()
        for name, value in network.state_dict().items():
            assert torch.equal(again.state_dict()[name], value)
    blocks = torch.linspace(-1, 1, 4 * 6 * 3, dtype=torch.float64).view(4, 6, 3)
    expected = torch.stack([network(block) for network, block in zip(networks, blocks, strict=True)])
    torch.testing.assert_close(stack(blocks), expected)


def test_images_in_one_row() -> None:
    flat = FlatMLPSpec((12, 5, 2)).build(torch.Generator().manual_seed(0))
    plain = MLPSpec((12, 5, 2)).build(torch.Generator().manual_seed(0))
    images = torch.rand(3, 3, 2, 2)
    assert torch.equal(flat(images), plain(images.flatten(1)))
    cut = before_head(flat)
    assert torch.equal(cut.head(cut.encoder(images)), flat(images))
    assert cut.encoder(images).shape == (3, 5)
