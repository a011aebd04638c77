import torch
from torch import Tensor, nn

from widemargin.fast.tracing import traced


class Adding(nn.Module):
    """Adds what it makes itself: a constant, or something else each time."""

    def __init__(self, constant: bool) -> None:
        super().__init__()
        self.constant = constant

    def forward(self, x: Tensor) -> Tensor:
        return x + (torch.tensor([1.0, 2.0]) if self.constant else torch.rand(2))


class Deciding(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_a_graph_computes_what_the_network_does_over_the_same_layers() -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), Adding(constant=True))
    graph, x = traced(network), torch.randn(4, 3)
    assert graph is not None
    assert torch.equal(graph(x), network(x))
    assert "_tensor_constant0" not in vars(network)
    assert graph.get_submodule("0").weight is network[0].weight


def test_what_a_graph_would_change_is_not_traced() -> None:
    hooked = nn.Sequential(nn.Linear(2, 2))
    hooked[0].register_forward_hook(lambda module, given, answer: 2 * answer)
    for network in (Deciding(), Adding(constant=False), hooked, nn.Bilinear(2, 2, 2)):
        assert traced(network) is None
