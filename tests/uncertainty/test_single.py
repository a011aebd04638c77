import torch
from torch import nn

from widemargin import Single, at_input
from widemargin.uncertainty.cuts import after

POINTS = torch.linspace(-1, 1, 18).view(6, 3)


def test_a_cut_leaves_the_function_as_it_was() -> None:
    layers = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
    whole = layers(POINTS)
    for cut in (at_input(layers), after(layers, 1), after(layers, 2)):
        network = Single(cut)
        torch.testing.assert_close(network.logits(network.encode(POINTS)), whole[None])
        torch.testing.assert_close(network(POINTS), whole.log_softmax(-1))
    assert torch.equal(Single(at_input(layers)).encode(POINTS), POINTS)
    assert torch.equal(Single(after(layers, 1)).encode(POINTS), layers[0](POINTS))
