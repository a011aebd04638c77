"""A network's graph, traced by torch.fx, as a list of layers with known bounds."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.nn import functional as F
from torch.nn.utils.parametrize import type_before_parametrizations

from widemargin.measure.certified.bounds import Program, Step
from widemargin.measure.certified.layers import (
    Add,
    Average,
    Conv,
    Interval,
    Layer,
    Linear,
    MaxPool,
    ReLU,
    Reshape,
    Scale,
)
from widemargin.networks.hooks import is_hooked
from widemargin.shapes import Points
from widemargin.uncertainty.network import Network, check_logits, in_eval_mode
from widemargin.uncertainty.single import Single

KNOWN = "linear, convolution, ReLU, batch-norm, max- and average-pooling, flatten, dropout, sums, constant factors"
Size = int | tuple[int, ...] | list[int]


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
                return _of_module(self.submodules[str(node.target)], value), taken
            name = node.target if isinstance(node.target, str) else _torch_name(node.target)
            if name.strip("_") in _ARITHMETIC:
                operands = [None if arg in taken else given for arg, given in zip(node.args, args, strict=True)]
                if any(self.env[operand].shape != value.shape for operand in taken):
                    raise NotImplementedError("changes the shape of what it takes")
                return _arithmetic(_ARITHMETIC[name.strip("_")], operands, value, **kwargs), taken
            if len(taken) == 1 and name == "addmm" and node.args[1] is taken[0]:
                return _product(value, args[2], args[0], **kwargs), taken
            if node.args[0] is not taken[0] or len(taken) > 1:
                raise _unknown(node, self.submodules)
            functions = _OF_ATEN if isinstance(node.target, OpOverload) else _FUNCTIONS
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


def _of_module(module: Any, value: Tensor) -> Layer:
    if is_hooked(module):
        raise NotImplementedError("has hooks")
    # Exactly these: a subclass may compute anything.
    kind = type_before_parametrizations(module)
    if kind is nn.Linear:
        return _linear(value, module.weight, module.bias)
    if kind in (nn.Conv1d, nn.Conv2d):
        if module.padding_mode != "zeros":
            raise NotImplementedError(f"pads by {module.padding_mode}")
        geometry = module.stride, module.padding, module.dilation, module.groups
        return _conv(value, module.weight, module.bias, *geometry)
    if kind in (nn.BatchNorm1d, nn.BatchNorm2d):
        statistics = module.running_mean, module.running_var, module.weight, module.bias
        return _batch_norm(value, *statistics, eps=module.eps)
    if kind is nn.MaxPool2d:
        return _max_pool(
            value,
            module.kernel_size,
            module.stride,
            module.padding,
            module.dilation,
            module.ceil_mode,
            module.return_indices,
        )
    if kind is nn.ReLU:
        return ReLU()
    if kind in (nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d):
        return Average(module)
    if kind in (nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout, nn.Dropout1d, nn.Dropout2d):
        return _reshape(value)
    raise KeyError(kind)


def _linear(value: Tensor, weight: Tensor, bias: Tensor | None = None) -> Layer:
    return Linear(*_copied(weight, bias))


def _product(value: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Layer:
    if matrix.ndim != 2 or (bias is not None and bias.ndim != 1):
        raise NotImplementedError("is no product with one matrix")
    return _linear(value, matrix.T, bias)


def _conv(
    value: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Layer:
    axes = value.ndim - 2
    dilations = _each(dilation, axes)
    if isinstance(padding, str):
        spans = [step * (size - 1) for step, size in zip(dilations, weight.shape[2:], strict=True)]
        if padding == "same" and any(span % 2 for span in spans):
            raise NotImplementedError("pads one side more than the other")
        padding = tuple(span // 2 if padding == "same" else 0 for span in spans)
    return Conv(*_copied(weight, bias), _each(stride, axes), _each(padding, axes), dilations, groups)


def _batch_norm(
    value: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Layer:
    if training or running_mean is None or running_var is None:
        raise NotImplementedError("mixes the points of a batch")
    mean, variance = running_mean.double(), running_var.double()
    factor = (variance + eps).rsqrt() * (1.0 if weight is None else weight.double())
    shift = (0.0 if bias is None else bias.double()) - mean * factor
    return Scale(*(part.view(-1, *[1] * (value.ndim - 2)) for part in (factor, shift)))


def _max_pool(
    value: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Layer:
    if ceil_mode or return_indices or _each(dilation, 2) != (1, 1) or value.ndim != 4:
        raise NotImplementedError("is a max-pooling with ceil_mode, dilation or return_indices")
    sizes = (_each(size, 2) for size in (kernel_size, stride or kernel_size, padding))
    kernel, steps, padded = ((height, width) for height, width in sizes)
    if kernel == (1, 1):
        raise NotImplementedError("chooses the highest of one")
    return MaxPool(kernel, steps, padded)


def _dropout(value: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Layer:
    if training:
        raise NotImplementedError("is random in eval mode, too")
    return _reshape(value)


def _relu(value: Tensor, inplace: bool = False) -> Layer:
    return ReLU()


def _reshape(value: Tensor, *args: Any, **kwargs: Any) -> Layer:
    """Whatever the arguments were: the result has its shape, and its features are in order."""
    return Reshape(tuple(value.shape[1:]))


def _mean(value: Tensor, dim: int | list[int], keepdim: bool = False, **kwargs: Any) -> Layer:
    axes = [dim] if isinstance(dim, int) else list(dim)
    rank = value.ndim + (0 if keepdim else len(axes))
    # In a batch of one its shape would not tell.
    if not axes or any(axis % rank == 0 for axis in axes):
        raise NotImplementedError("mixes the points of a batch")
    return _average(torch.mean, value, dim, keepdim, **kwargs)


def _average(function: Callable[..., Tensor], value: Tensor, *args: Any, **kwargs: Any) -> Layer:
    return Average(lambda values: function(values, *args, **kwargs))


_FUNCTIONS: dict[str, Callable[..., Layer]] = {
    **dict.fromkeys(("relu", "relu_"), _relu),
    **dict.fromkeys(("flatten", "view", "reshape", "contiguous", "clone", "squeeze", "unsqueeze"), _reshape),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d"), _dropout),
    **{
        name: partial(_average, getattr(F, name))
        for name in ("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d")
    },
    "mean": _mean,
    "linear": _linear,
    **dict.fromkeys(("matmul", "mm"), _product),
    **dict.fromkeys(("conv1d", "conv2d"), _conv),
    "batch_norm": _batch_norm,
    "max_pool2d": _max_pool,
}


def _batch_norm_of_aten(
    value: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Layer:
    return _batch_norm(value, mean, variance, weight, bias, training, momentum, eps)


_OF_ATEN = {**_FUNCTIONS, "batch_norm": _batch_norm_of_aten}
"""The operators of torch.export, which take their arguments in the same order but for one."""

_ARITHMETIC = {
    "add": "+", "iadd": "+", "sub": "-", "isub": "-",
    "mul": "*", "imul": "*", "truediv": "/", "itruediv": "/", "div": "/",
}  # fmt: skip


def _arithmetic(sign: str, operands: list[Any], value: Tensor) -> Layer:
    """None is a value that depends on the input, anything else a constant."""
    one, zero = value.new_ones((), dtype=torch.float64), value.new_zeros((), dtype=torch.float64)
    match sign, operands:
        case "+", [None, None]:
            return Add()
        case "-", [None, None]:
            return Add(-1)
        case (("*" | "/"), [None, None]):
            raise NotImplementedError("is no linear function of what it takes")
        case ("+", [None, constant]) | ("+", [constant, None]):
            return Scale(one, _constant(constant, value))
        case "-", [None, constant]:
            return Scale(one, -_constant(constant, value))
        case "-", [constant, None]:
            return Scale(-one, _constant(constant, value))
        case ("*", [None, constant]) | ("*", [constant, None]):
            return Scale(_constant(constant, value), zero)
        case "/", [None, constant]:
            return Scale(1 / _constant(constant, value), zero)
    raise NotImplementedError("is no linear function of what it takes")


def _constant(given: Any, like: Tensor) -> Tensor:
    constant = torch.as_tensor(given, dtype=torch.float64, device=like.device).detach()
    if constant.ndim == like.ndim and len(constant) != 1:
        raise NotImplementedError("adds another constant to every point of a batch")
    return constant


def _copied(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return weight.detach().double(), None if bias is None else bias.detach().double()


def _each(size: Size, axes: int) -> tuple[int, ...]:
    return (size,) * axes if isinstance(size, int) else tuple(size) * (axes // len(size))
