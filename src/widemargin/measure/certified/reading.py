"""A network's graph, traced by torch.fx, as a list of layers with known bounds."""

from __future__ import annotations

import operator
from typing import Any, final

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.nn import functional as F

from widemargin.measure.certified.bounds import Program, Step
from widemargin.measure.certified.layers import Interval, Layer, Reshape
from widemargin.measure.certified.torch_layers import (
    ARITHMETIC,
    ATEN_FUNCTIONS,
    FUNCTIONS,
    arithmetic,
    of_module,
    product,
)
from widemargin.shapes import Points
from widemargin.uncertainty.network import Network, check_logits, in_eval_mode
from widemargin.uncertainty.single import Single

KNOWN = "linear, convolution, ReLU, batch-norm, max- and average-pooling, flatten, dropout, sums, constant factors"


def read(network: Network | nn.Module, points: Points) -> Program:
    """The network in eval mode, from input to logits, its weights copied in double precision.

    `points` (any two or more) decide the shapes, and the steps are compared with the network on them.
    """
    module = _one_module(network)
    count, points = len(points), _repeated(points, module)
    with torch.no_grad(), in_eval_mode(module):
        logits = module(points)
        check_logits(logits, len(points))
        try:
            graph = _WithShapes(points.clone()).trace(module)
        except Exception as error:
            raise ValueError(
                f"no certificate for a {type(network).__name__}: its steps must be the same for all inputs, "
                "and traceable without their values"
            ) from error
        reading = _Reading(fx.GraphModule(module, graph))
        # A copy: the network may overwrite its input.
        reading.run(points.clone())
        program = Program(points[0].shape, tuple(reading.steps))
        _check_same(program, points[:count], logits[:count], type(network).__name__)
    return program


def _repeated(points: Points, module: nn.Module) -> Tensor:
    """As many as the network's batch size, if that is fixed."""
    sizes = [getattr(part, "fixed_batch_size", None) for part in module.modules()]
    rows = next((size for size in sizes if isinstance(size, int)), len(points))
    return points[torch.arange(rows, device=points.device) % len(points)]


def _one_module(network: Network | nn.Module) -> nn.Module:
    if isinstance(network, Single):
        # From the input, wherever it is cut: only inputs can be perturbed.
        return nn.Sequential(network.encoder, network.head)
    if isinstance(network, Network):
        raise ValueError(
            f"no certificate for a {type(network).__name__}: it must be one network with one member, a Single"
        )
    # Around it, so that hooks of the network itself are traced, too.
    return nn.Sequential(network)


def _check_same(program: Program, points: Points, logits: Tensor, name: str) -> None:
    for point, answer in zip(points.double(), logits.double(), strict=True):
        known = [Interval(point[None], point[None])]
        for step in program.steps:
            known.append(step.layer.interval(*(known[source] for source in step.sources)))
        if not torch.allclose(known[-1].low[0], answer, rtol=1e-3, atol=1e-3 * (1 + float(answer.abs().max()))):
            raise ValueError(f"no certificate for a {name}: its steps, read by torch.fx, do not answer as it does")


@final
class _WithShapes(fx.Tracer):
    """Runs every call on points while tracing: a network may use shapes, as in x.view(len(x), -1)."""

    def __init__(self, points: Points) -> None:
        super().__init__()
        self.points = points
        self.values: dict[fx.Node, Any] = {}

    def proxy(self, node: fx.Node) -> fx.Proxy:
        self.values[node] = self.points if node.op == "placeholder" else self._computed(node)
        return _Shaped(node, self)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Weights as they are: their values are known."""
        return attr_val

    def _computed(self, node: fx.Node) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._value)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        if node.op == "call_module":
            # A tracer intercepts calls of a module, but not of its forward.
            return self.root.get_submodule(str(node.target)).forward(*args, **kwargs)
        assert callable(node.target)
        return node.target(*args, **kwargs)

    def _value(self, node: fx.Node) -> Any:
        return self.values[node] if node in self.values else operator.attrgetter(str(node.target))(self.root)


class _Shaped(fx.Proxy):
    """A proxy with those properties of its value that depend only on the shape of the inputs."""

    @property
    def shape(self) -> torch.Size:
        return self._known().shape

    @property
    def ndim(self) -> int:
        return self._known().ndim

    def dim(self) -> int:
        return self._known().dim()

    def __len__(self) -> int:
        return len(self._known())

    def is_floating_point(self) -> bool:
        return self._known().is_floating_point()

    def _known(self) -> Tensor:
        assert isinstance(self.tracer, _WithShapes)
        return self.tracer.values[self.node]  # type: ignore[no-any-return]


@final
class _Reading(fx.Interpreter):
    """Runs the graph for shapes and constants, and records the step of every value that depends on the input."""

    def __init__(self, traced: fx.GraphModule) -> None:
        super().__init__(traced, garbage_collect_values=False)
        # Errors without the interpreter's traceback.
        self.extra_traceback = False
        self.steps: list[Step] = []
        self.number: dict[fx.Node, int] = {}
        """Of the value that a node holds; overwritten with it by layers that work in place."""

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        sources = [node for node in n.all_input_nodes if node in self.number]
        if n.op == "placeholder":
            if self.number:
                raise ValueError("no certificate for a network that takes more than its inputs")
            self.number[n] = 0
        elif n.op == "output":
            (answer,) = n.args
            if not isinstance(answer, fx.Node) or answer not in self.number:
                raise ValueError("no certificate for a network that returns anything but logits of its inputs")
            # Logits that an earlier step returned, or the input itself.
            if self.number[answer] != len(self.steps) or not self.steps:
                self._note(Reshape(tuple(value.shape[1:])), (self.number[answer],), value)
        elif sources and not _is_shape(n):
            layer, taken = self._layer(n, value)
            # An identity is no step, so that a network has the same bounds however it is wrapped or exported.
            same = isinstance(layer, Reshape) and value.shape == self.env[taken[0]].shape
            numbers = tuple(self.number[node] for node in taken)
            self.number[n] = numbers[0] if same else self._note(layer, numbers, value)
            if _in_place(n, self.submodules):
                self.number[taken[0]] = self.number[n]
        return value

    def _note(self, layer: Layer, sources: tuple[int, ...], value: Tensor) -> int:
        self.steps.append(Step(layer, sources, value[0].shape))
        return len(self.steps)

    def _layer(self, node: fx.Node, value: Any) -> tuple[Layer, list[fx.Node]]:
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        taken = [arg for arg in node.args if isinstance(arg, fx.Node) and arg in self.number]
        if not isinstance(value, Tensor) or not taken or set(taken) != set(node.all_input_nodes) & set(self.number):
            raise _unknown(node, self.submodules)
        first: Tensor = self.env[taken[0]]
        if value.ndim < 2 or len(value) != len(first):
            raise _unknown(node, self.submodules, "mixes the points of a batch")
        try:
            if node.op == "call_module":
                return of_module(self.submodules[str(node.target)], value), taken
            name = node.target if isinstance(node.target, str) else _torch_name(node.target)
            if name.strip("_") in ARITHMETIC:
                operands = [None if arg in taken else given for arg, given in zip(node.args, args, strict=True)]
                if any(self.env[operand].shape != value.shape for operand in taken):
                    raise NotImplementedError("changes the shape of what it takes")
                return arithmetic(ARITHMETIC[name.strip("_")], operands, value, **kwargs), taken
            if len(taken) == 1 and name == "addmm" and node.args[1] is taken[0]:
                return product(value, args[2], args[0], **kwargs), taken
            if node.args[0] is not taken[0] or len(taken) > 1:
                raise _unknown(node, self.submodules)
            functions = ATEN_FUNCTIONS if isinstance(node.target, OpOverload) else FUNCTIONS
            return functions[name](value, *args[1:], **kwargs), taken
        except (KeyError, TypeError, NotImplementedError) as error:
            raise _unknown(
                node, self.submodules, str(error) if isinstance(error, NotImplementedError) else ""
            ) from error


def _unknown(node: fx.Node, modules: dict[str, nn.Module], why: str = "") -> ValueError:
    if node.op == "call_module":
        layer = f"{str(node.target).removeprefix('0.')!r} ({modules[str(node.target)]})"
    else:
        name = node.target if isinstance(node.target, str) else _torch_name(node.target)
        layer = f"the operator {name or getattr(node.target, '__name__', node.target)!r}"
    return ValueError(f"no certificate for a network with {layer}{f', which {why}' if why else ''}: known are {KNOWN}")


def _is_shape(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in ("size", "dim", "ndimension")
    if isinstance(node.target, OpOverload):
        return _torch_name(node.target) == "sym_size"
    return node.target is getattr and node.args[1] in ("shape", "ndim", "dtype", "device")


def _in_place(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return bool(getattr(modules[str(node.target)], "inplace", False))
    name = node.target if isinstance(node.target, str) else _torch_name(node.target)
    # torch's convention, and Python's: add_ and += overwrite, add and + do not.
    return bool(node.kwargs.get("inplace")) or name.endswith("_") or name in ("iadd", "isub", "imul", "itruediv")


def _torch_name(function: Any) -> str:
    """The name of a function of torch or Python; empty for others of the same name."""
    if isinstance(function, OpOverload):
        return str(function._schema.name).removeprefix("aten::")
    name = str(getattr(function, "__name__", ""))
    return name if any(getattr(home, name, None) is function for home in (operator, torch, F)) else ""
