"""The same function as a graph of fewer and faster calls: what `accelerated` does to a traced network."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from widemargin.fast.blocks import PooledConvolution
from widemargin.fast.folding import Shift, factor_and_shift, folded, is_positive, with_weight
from widemargin.fast.pooling import Halving, is_halving
from widemargin.fast.winograd import WinogradConvolution, is_for_winograd, numbers_at_points

RECTIFIERS = (F.relu, torch.relu, torch.relu_, "relu", "relu_")
SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")
MOST_HELD = 3 * 2**26
"""So many numbers, 0.8 gigabytes, may be weights of tiles: they are 6 times those of their convolutions."""


def rewritten(graph: fx.GraphModule, most_held: int = MOST_HELD) -> bool:
    """Rewrite the graph of a network in eval mode whose numbers stay as they are; whether there was anything to do."""
    folds = (
        _fold_into_convolutions,
        _fold_into_the_next,
        _pool_convolutions,
        _halve,
        partial(_tile, most_held=most_held),
    )
    # All of them, not only up to the first that finds something.
    changes = [fold(graph) for fold in folds]
    _overwrite(graph)
    _reshape(graph)
    graph.delete_all_unused_submodules()
    graph.recompile()
    return any(changes)


class Rewritten(nn.Module):
    """A graph called as it is: torch.fx's own call would print what a network raises."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        self.graph = graph
        self.training = False

    def forward(self, inputs: Tensor) -> Tensor:
        return self.graph.forward(inputs)  # type: ignore[no-any-return]


def layer_of(graph: fx.GraphModule, node: Any) -> Any:
    """The module that a node calls, if it calls one with a single argument."""
    if not isinstance(node, fx.Node) or node.op != "call_module" or len(node.args) != 1 or node.kwargs:
        return None
    return graph.get_submodule(str(node.target))


def is_a(layer: Any, kind: type[nn.Module]) -> bool:
    """Exactly this: a subclass may compute anything.  A weight may be bounded by a parametrization."""
    return isinstance(layer, nn.Module) and type_before_parametrizations(layer) is kind


def is_relu(graph: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        return is_a(layer_of(graph, node), nn.ReLU)
    rest = {name: value for name, value in node.kwargs.items() if name != "inplace"}
    return node.op != "get_attr" and node.target in RECTIFIERS and len(node.args) == 1 and not rest


def _is_norm(layer: Any) -> bool:
    return is_a(layer, nn.BatchNorm2d) and not layer.training and layer.running_mean is not None


def _replace(graph: fx.GraphModule, node: fx.Node, given: fx.Node, module: nn.Module) -> fx.Node:
    """`module(given)` instead of a node."""
    name = f"quick_{node.name}"
    graph.add_submodule(name, module.eval())
    with graph.graph.inserting_before(node):
        made = graph.graph.call_module(name, (given,))
    node.replace_all_uses_with(made)
    graph.graph.erase_node(node)
    return made


def _fold_into_convolutions(graph: fx.GraphModule) -> bool:
    """conv, norm -> conv"""
    changes = 0
    for node in list(graph.graph.nodes):
        norm = layer_of(graph, node)
        if not _is_norm(norm):
            continue
        before = node.args[0]
        conv = layer_of(graph, before)
        if is_a(conv, nn.Conv2d) and len(before.users) == 1:
            _replace(graph, node, before.args[0], folded(conv, norm))
            graph.graph.erase_node(before)
            changes += 1
    return changes > 0


def _fold_into_the_next(graph: fx.GraphModule) -> bool:
    """norm, relu, conv -> shift, relu, conv: a positive factor passes a rectifier."""
    changes = 0
    for node in list(graph.graph.nodes):
        norm = layer_of(graph, node)
        if not _is_norm(norm) or len(node.users) != 1:
            continue
        relu = next(iter(node.users))
        if not is_relu(graph, relu):
            continue
        convs = [layer_of(graph, user) for user in relu.users]
        if not convs or not all(is_a(conv, nn.Conv2d) and _takes_scale(conv) for conv in convs):
            continue
        factor, shift = factor_and_shift(norm)
        if not is_positive(factor):
            continue
        for user, conv in zip(list(relu.users), convs, strict=True):
            _replace(graph, user, relu, with_weight(conv, conv.weight * factor.view(-1, 1, 1), conv.bias))
        _replace(graph, node, node.args[0], Shift((shift / factor).detach()))
        changes += 1
    return changes > 0


def _takes_scale(conv: nn.Conv2d) -> bool:
    return conv.groups == 1


def _pool_convolutions(graph: fx.GraphModule) -> bool:
    """conv, pool, relu or conv, relu, pool -> one module that knows a faster order."""
    changes = 0
    for node in list(graph.graph.nodes):
        conv = layer_of(graph, node)
        if not is_a(conv, nn.Conv2d) or conv.kernel_size != (5, 5) or len(node.users) != 1:
            continue
        second = next(iter(node.users))
        if len(second.users) != 1:
            continue
        third = next(iter(second.users))
        pools = [one for one in (second, third) if _is_halving(graph, one)]
        rectifiers = [one for one in (second, third) if is_relu(graph, one)]
        if len(pools) == len(rectifiers) == 1:
            _replace(graph, third, node.args[0], PooledConvolution(conv, nn.MaxPool2d(2)))
            graph.graph.erase_node(second)
            graph.graph.erase_node(node)
            changes += 1
    return changes > 0


def _halve(graph: fx.GraphModule) -> bool:
    pools = [node for node in graph.graph.nodes if _is_halving(graph, node)]
    for node in pools:
        _replace(graph, node, node.args[0], Halving())
    return len(pools) > 0


def _tile(graph: fx.GraphModule, most_held: int) -> bool:
    """3 x 3 convolutions in tiles, which have channels last in memory; all others have them there then, too."""
    convs = {node: conv for node in graph.graph.nodes if is_a(conv := layer_of(graph, node), nn.Conv2d)}
    tiled = _tiled(list(dict.fromkeys(convs.values())), most_held)
    for node, conv in convs.items():
        if conv in tiled:
            _replace(graph, node, node.args[0], tiled[conv])
        elif tiled:
            conv.to(memory_format=torch.channels_last)
    return len(tiled) > 0


def _tiled(convs: list[nn.Conv2d], most_held: int) -> dict[nn.Conv2d, WinogradConvolution]:
    """As many as may be held, from the first on."""
    left, tiled = most_held, {}
    for conv in convs:
        if is_for_winograd(conv) and numbers_at_points(conv) <= left:
            left -= numbers_at_points(conv)
            tiled[conv] = WinogradConvolution(conv)
    return tiled


def _is_halving(graph: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        layer = layer_of(graph, node)
        return layer is not None and is_halving(layer)
    rest = node.args[1:]
    return node.target is F.max_pool2d and rest in ((2,), (2, 2)) and node.kwargs in ({}, _AS_TRACED, {"stride": 2})


# What torch.fx notes for `F.max_pool2d(images, 2)`.
_AS_TRACED = {
    "stride": None,
    "padding": 0,
    "dilation": 1,
    "ceil_mode": False,
    "return_indices": False,
}


def _overwrite(graph: fx.GraphModule) -> None:
    """Sums and rectifiers in place, where nothing else reads what they overwrite and no gradient needs it."""
    for node in list(graph.graph.nodes):
        overwriting = _overwriting(graph, node)
        if overwriting is None:
            continue
        before = node.args[0]
        if isinstance(before, fx.Node) and len(before.users) == 1 and _is_fresh(graph, before):
            with graph.graph.inserting_before(node):
                made = graph.graph.call_function(overwriting, node.args)
            node.replace_all_uses_with(made)
            graph.graph.erase_node(node)


def _reshape(graph: fx.GraphModule) -> None:
    """Instead of a view, which asks for an order in memory that faster layers do not keep."""
    for node in graph.graph.nodes:
        if node.op == "call_method" and node.target == "view" and all(_is_size(size) for size in node.args[1:]):
            node.target = "reshape"


def _is_size(value: Any) -> bool:
    return not isinstance(value, torch.dtype)


def _overwriting(graph: fx.GraphModule, node: fx.Node) -> Callable[..., Any] | None:
    if is_relu(graph, node):
        return torch.relu_
    return operator.iadd if is_sum(node) else None


def is_sum(node: fx.Node) -> bool:
    """Of two values in the graph."""
    both = len(node.args) == 2 and all(isinstance(value, fx.Node) for value in node.args)
    return node.op in ("call_function", "call_method") and node.target in SUMS and both and not node.kwargs


def _is_fresh(graph: fx.GraphModule, node: fx.Node) -> bool:
    layer = layer_of(graph, node)
    if layer is not None:
        return any(is_a(layer, kind) for kind in (nn.Conv2d, nn.Linear, nn.BatchNorm2d, Shift, WinogradConvolution))
    return is_sum(node)
