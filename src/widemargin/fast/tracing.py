"""A network as a graph of its layers' calls, by torch.fx."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, fx, nn

from widemargin.networks.hooks import any_hooked


def traced(network: nn.Module) -> fx.GraphModule | None:
    """Its graph in the mode it is in, over the same layers; None if it cannot be read, or if a hook would be lost."""
    # What was scripted or traced by torch.jit, or compiled, is no Python that could be read.
    if any_hooked(network) or any(_is_compiled(module) for module in network.modules()):
        return None
    graph = _graph(network)
    if graph is None or not _constants(graph):
        return graph
    # What forward makes without asking its input is frozen by a trace: right only if it is the same each time.
    again = _graph(network)
    same = again is not None and _same(_constants(graph), _constants(again))
    return graph if same else None


def _graph(network: nn.Module) -> fx.GraphModule | None:
    try:
        # A trace stores constants in the module it is given: here in a copy with the same layers.
        graph = fx.symbolic_trace(copy.copy(network))
    except Exception:
        # Whatever a forward that looks at values does with a proxy.
        return None
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return graph if len(inputs) == 1 else None


def _is_compiled(module: nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod")


def _constants(graph: fx.GraphModule) -> dict[str, Tensor]:
    named = [str(node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    return {name: getattr(graph, name) for name in named if name.startswith("_tensor_constant")}


def _same(ones: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    return ones.keys() == others.keys() and all(torch.equal(ones[name], others[name]) for name in ones)
