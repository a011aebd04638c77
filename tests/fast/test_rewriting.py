import pytest
import torch
from torch import nn

from widemargin.fast.rewriting import Rewritten, rewritten
from widemargin.fast.tracing import traced
from widemargin.fast.winograd import WinogradConvolution, numbers_at_points


def calls(graph: torch.fx.GraphModule) -> list[type]:
    return [type(graph.get_submodule(str(n.target))) for n in graph.graph.nodes if n.op == "call_module"]


def network(*layers: nn.Module) -> nn.Module:
    for layer in layers:
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2.0)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
    return nn.Sequential(*layers).double().eval()


@pytest.mark.parametrize(
    "layers",
    [
        (nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()),
        (nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 3, 3, padding=1)),
        (nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)),
    ],
    ids=["into the one before", "into the next", "with pooling"],
)
def test_a_rewritten_graph_has_no_normalisation_and_computes_the_same(layers: tuple[nn.Module, ...]) -> None:
    model, images = network(*layers), torch.randn(2, 2, 8, 8).double()
    graph = traced(model)
    assert graph is not None
    assert rewritten(graph)
    assert nn.BatchNorm2d not in calls(graph)
    assert nn.MaxPool2d not in calls(graph)
    with torch.no_grad():
        torch.testing.assert_close(Rewritten(graph)(images), model(images))


def test_a_convolution_whose_answer_is_used_twice_keeps_its_normalisation() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = network(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.layers[0](x)
            return hidden + self.layers[1](hidden)

    graph = traced(Twice().eval())
    assert graph is not None
    rewritten(graph)
    assert nn.BatchNorm2d in calls(graph)


def test_nothing_to_do_is_said() -> None:
    graph = traced(network(nn.Flatten(), nn.Linear(8, 3)))
    assert graph is not None
    assert not rewritten(graph)


def wide(count: int) -> list[nn.Conv2d]:
    return [nn.Conv2d(64, 64, 3, padding=1) for _ in range(count)]


def test_as_many_convolutions_are_in_tiles_as_may_be_held_and_one_used_twice_is_held_once() -> None:
    first, second, third = wide(3)
    graph = traced(network(nn.Conv2d(3, 64, 1), first, first, second, third))
    assert graph is not None
    assert rewritten(graph, most_held=2 * numbers_at_points(first))
    assert calls(graph) == [nn.Conv2d, *[WinogradConvolution] * 3, nn.Conv2d]
    held = {layer for layer in graph.modules() if isinstance(layer, WinogradConvolution)}
    assert [layer.conv for layer in held if layer.conv is first] == [first]
    assert len(held) == 2
    plain = [layer for layer in graph.children() if type(layer) is nn.Conv2d]
    assert all(layer.weight.is_contiguous(memory_format=torch.channels_last) for layer in plain)
