"""Cuts: a network as encoder and head.  Perturbations are added to what the encoder returns."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from widemargin.networks.hooks import is_hooked
from widemargin.networks.lenet import LeNet
from widemargin.networks.mlp import MLP
from widemargin.networks.resnet import DropoutResNet18, PreActResNet18


class Cut(NamedTuple):
    """Two halves that share their parameters with the network: head(encoder(x)) is network(x), bit for bit."""

    encoder: nn.Module
    head: nn.Module


def at_input(network: nn.Module) -> Cut:
    """Perturb the inputs themselves."""
    return Cut(nn.Identity(), network)


def after(network: nn.Sequential, layers: int) -> Cut:
    """Perturb what the first `layers` layers of a Sequential return: its latent space."""
    if not 0 < layers < len(network):
        raise ValueError(f"layers must be in 1..{len(network) - 1} for {len(network)} layers, got {layers}")
    return Cut(network[:layers], network[layers:])


def before_head(network: nn.Module) -> Cut:
    """The latent space of Sec. 5.1.2: what the last convolution returns, or what an MLP's last layer is given.

    A ResNet's last convolution counts with the bypass that is added to it, a LeNet's with its ReLU and pooling.  Of a
    PreActResNet18 only the average over the image and the linear layer follow.
    """
    if isinstance(network, LeNet | PreActResNet18 | DropoutResNet18):
        return Cut(network.encoder, network.head)
    if isinstance(network, MLP):
        *hidden, last = network.layers
        if not hidden:
            raise ValueError("an MLP needs a hidden layer to have a latent space, got one layer: use at_input")
        if network.drops is None:
            return Cut(nn.Sequential(*(part for layer in hidden for part in (layer, nn.ReLU()))), last)
        # The last dropout belongs to the head, as a ResNet's does: it is drawn for the perturbed latent point.
        pieces = [part for layer, drop in zip(hidden, network.drops, strict=True) for part in (layer, nn.ReLU(), drop)]
        return Cut(nn.Sequential(*pieces[:-1]), nn.Sequential(pieces[-1], last))
    if is_chain(network) and (isinstance(last := list(network.children())[-1], _KNOWN) or is_chain(last)):
        # A normalisation, a change of shape, or both before one of these.
        cut = before_head(last)
        return Cut(nn.Sequential(*list(network.children())[:-1], cut.encoder), cut.head)
    raise ValueError(
        "before_head knows where to cut an MLP, LeNet, PreActResNet18 or DropoutResNet18, "
        f"got a {type(network).__name__}: name the last layer of its encoder with at_module"
    )


_KNOWN = (MLP, LeNet, PreActResNet18, DropoutResNet18)


def at_module(network: nn.Module, name: str) -> Cut:
    """Perturb what the submodule of this name returns; everything that follows must depend on it alone.

    A chain of Sequentials is taken apart, and keeps its parameters' names.  Any other network is traced by torch.fx.
    """
    modules = dict(network.named_modules(remove_duplicate=False))
    if not name or name not in modules:
        known = ", ".join(other for other in modules if other) or "none, for it has no submodules"
        raise ValueError(f"name must be a submodule of {type(network).__name__}, got {name!r}: it can be {known}")
    path = name.split(".")
    containers = [modules[".".join(path[:depth])] for depth in range(len(path))]
    if all(map(is_chain, containers)):
        return _cut_chain(network, path)
    return _cut_traced(network, modules[name], name)


def is_chain(module: nn.Module) -> bool:
    """Whether its forward is that of its children, one after the other, and nothing else."""
    # A hook of the container would be lost with it.
    plain = isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
    return plain and not is_hooked(module)


def _cut_chain(network: nn.Module, path: list[str]) -> Cut:
    before, behind = _parts(network, path)
    first = next((module for part in behind.values() for module in part.modules() if not is_chain(module)), None)
    if first is None:
        raise _nothing_after(".".join(path))
    if getattr(first, "inplace", False):
        raise _overwritten(".".join(path), f"the {type(first).__name__} that follows")
    return Cut(_chain(before, network.training), _chain(behind, network.training))


def _parts(chain: nn.Module, path: list[str]) -> tuple[OrderedDict[str, nn.Module], OrderedDict[str, nn.Module]]:
    # Not named_children(), which would leave out the second use of a layer.
    children = [(name, child) for name, child in chain._modules.items() if child is not None]
    position = [name for name, _ in children].index(path[0])
    name, child = children[position]
    before, behind = OrderedDict(children[:position]), OrderedDict(children[position + 1 :])
    if len(path) == 1:
        before[name] = child
        return before, behind
    inner_before, inner_behind = _parts(child, path[1:])
    before[name] = _chain(inner_before, child.training)
    if inner_behind:
        behind[name] = _chain(inner_behind, child.training)
        behind.move_to_end(name, last=False)
    return before, behind


def _chain(parts: OrderedDict[str, nn.Module], training: bool) -> nn.Sequential:
    chain = nn.Sequential(parts)
    chain.training = training
    return chain


class _OnePath(nn.Module):
    """A network called with its inputs alone: optional arguments keep their defaults, hooks run."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.training = network.training

    def forward(self, inputs: Any) -> Any:
        return self.network(inputs)


class _Tracer(fx.Tracer):
    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole = whole

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return m is self.whole or super().is_leaf_module(m, module_qualified_name)


def _cut_traced(network: nn.Module, module: nn.Module, name: str) -> Cut:
    root, graph = _traced(network, module, name)
    calls = [node for node in graph.nodes if node.op == "call_module" and root.get_submodule(node.target) is module]
    if len(calls) != 1:
        raise ValueError(f"the network must call {name!r} exactly once to be cut there, got {len(calls)} calls")
    (cut,) = calls
    if all(user.op == "output" for user in cut.users):
        raise _nothing_after(name)
    for user in cut.users:
        if _overwrites(user, root):
            raise _overwritten(name, _described(user))
    upstream = _upstream(cut)
    encoder, head = fx.Graph(), fx.Graph()
    in_encoder: dict[fx.Node, fx.Node] = {}
    in_head = {cut: head.placeholder("encoded")}

    def from_the_cut(node: fx.Node) -> fx.Node:
        if node.op == "get_attr" and node not in in_head:
            in_head[node] = head.node_copy(node)
        if node not in in_head:
            raise ValueError(
                f"a network can be cut only where everything passes, but {_described(node)} is used on both sides of "
                f"{name!r}: choose a layer that no skip connection crosses"
            )
        return in_head[node]

    for node in graph.nodes:
        if node in upstream or node.op == "placeholder":
            in_encoder[node] = encoder.node_copy(node, in_encoder.__getitem__)
        elif node not in in_head:
            in_head[node] = head.node_copy(node, from_the_cut)
    encoder.output(in_encoder[cut])
    return Cut(fx.GraphModule(root, encoder, "Encoder"), fx.GraphModule(root, head, "Head"))


def _traced(network: nn.Module, module: nn.Module, name: str) -> tuple[nn.Module, fx.Graph]:
    """A trace holds for one mode; it is the network only if it is the same in both, with the same constants."""
    traces = []
    for training in (False, True):
        root = _OnePath(network)
        try:
            with _in_mode(network, training):
                traces.append((root, _Tracer(module).trace(root)))
        except Exception as error:
            raise ValueError(
                f"a {type(network).__name__} must be an nn.Sequential or traceable by torch.fx to be cut at {name!r}, "
                f"got {type(error).__name__}: {error}"
            ) from error
    (evaluated, graph), (trained, other) = traces
    if str(graph) != str(other) or not _same_constants(evaluated, trained):
        raise ValueError(
            f"a {type(network).__name__} must do the same in train and eval mode to be cut at {name!r}, got two "
            "different traces: leave the difference to modules such as nn.Dropout"
        )
    return evaluated, graph


def _same_constants(one: nn.Module, other: nn.Module) -> bool:
    """Tensors that forward itself makes are stored by the tracer on the root: random ones differ."""
    constants = {name: value for name, value in vars(one).items() if isinstance(value, Tensor)}
    return all(torch.equal(value, getattr(other, name)) for name, value in constants.items())


@contextmanager
def _in_mode(network: nn.Module, training: bool) -> Iterator[None]:
    modes = [(module, module.training) for module in network.modules()]
    network.train(training)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _upstream(cut: fx.Node) -> set[fx.Node]:
    visited, open_nodes = {cut}, [cut]
    while open_nodes:
        fresh = [node for node in open_nodes.pop().all_input_nodes if node not in visited]
        visited.update(fresh)
        open_nodes += fresh
    return visited


def _overwrites(node: fx.Node, root: nn.Module) -> bool:
    if node.op == "call_module":
        return bool(getattr(root.get_submodule(str(node.target)), "inplace", False))
    # torch's convention: relu_ overwrites, relu does not.
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return bool(node.kwargs.get("inplace")) or (name.endswith("_") and not name.endswith("__"))


def _described(node: fx.Node) -> str:
    """A node by the user's name for it."""
    if node.op == "placeholder":
        return "the input"
    return repr(str(node.target).removeprefix("network.") if node.op == "call_module" else node.name)


def _nothing_after(name: str) -> ValueError:
    return ValueError(f"something must follow the cut, but nothing follows {name!r}: choose an earlier layer")


def _overwritten(name: str, layer: str) -> ValueError:
    return ValueError(
        f"what {name!r} returns must outlive the cut, but {layer} overwrites it: "
        "set inplace=False there, or cut after it"
    )
