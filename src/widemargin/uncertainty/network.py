"""The base class of all classifiers: encoder and head, logits of M members; checks of a user's network."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn

from widemargin.shapes import Encoded, LogProbs, MemberLogits, Points
from widemargin.uncertainty.predictive import log_mean_prob


class Network(nn.Module, ABC):
    """Perturbations are added between `encode` and `logits`: to the input, or wherever the network is cut."""

    replicas: int
    """How many independent networks share the batch: each owns one of as many equal blocks of rows."""

    @abstractmethod
    def encode(self, inputs: Points) -> Encoded: ...

    @abstractmethod
    def logits(self, encoded: Encoded) -> MemberLogits: ...

    @abstractmethod
    def penalty(self) -> Tensor:
        """The network's own term of the training loss: a Gaussian process's KL / N, else 0."""

    def forward(self, inputs: Points) -> LogProbs:
        """Log of the mean probability, which is measured and attacked."""
        return log_mean_prob(self.logits(self.encode(inputs)))


def no_penalty(network: nn.Module) -> Tensor:
    parameter = next(network.parameters(), None)
    return torch.zeros(()) if parameter is None else parameter.new_zeros(())


@contextmanager
def in_eval_mode(network: nn.Module) -> Iterator[None]:
    """Restores the mode of every module: some may be frozen in eval mode while others train."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def logits_of(answer: Any, name: str) -> Tensor:
    """The logits in what a network returned: the tensor, the first entry of a tuple, ["logits"] or `.logits`."""
    if isinstance(answer, tuple | list) and len(answer) > 0 and not hasattr(answer, "logits"):
        answer = answer[0]
    elif isinstance(answer, Mapping):
        answer = answer.get("logits", answer)
    # A tracer gives and takes no tensors.
    logits = answer if isinstance(answer, Tensor | fx.Proxy) else getattr(answer, "logits", None)
    if not isinstance(logits, Tensor | fx.Proxy):
        raise ValueError(
            f"{name} must return logits as one tensor, got a {type(answer).__name__}: let its forward return the "
            'logits alone, first in a tuple, or by the name "logits"'
        )
    return logits  # type: ignore[return-value]


def check_logits(logits: Tensor, rows: int | torch.SymInt) -> None:
    """One member's output must be logits, one row for every point, for two classes or more."""
    if logits.ndim != 2 or logits.shape[0] != rows or logits.shape[1] < 2:
        raise ValueError(
            f"the network must return logits of shape [{rows}, classes] with at least 2 classes, got "
            f"{list(logits.shape)}: for two classes return two columns, of one logit z of shape [{rows}, 1] "
            "torch.cat([torch.zeros_like(z), z], 1)"
        )


def check_is_module(model: object) -> None:
    """The wrong guesses about what a model is, each with the right call."""
    if isinstance(model, nn.Module):
        return
    name = getattr(model, "__name__", type(model).__name__)
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise ValueError(f"the model must be a network, got the class {name}: make one first, {name}(...)")
    if isinstance(model, str):
        raise ValueError(f"the model must be a torch.nn.Module, got {model!r}: load it first, wm.load({model!r})")
    if hasattr(model, "predict_proba") and hasattr(model, "audit"):
        raise ValueError(
            f"the model must be a torch.nn.Module, got {name}: call its own methods, model.audit(x, y, eps=...)"
        )
    if not callable(model):
        raise ValueError(f"the model must be a torch.nn.Module, got {name}: the model comes first, then the data")
    raise ValueError(
        f"the model must be a torch.nn.Module that returns logits, got {name}: put it into the forward of one, in "
        "operations of torch, through which gradients reach its input"
    )


def check_is_network(network: object) -> None:
    if not isinstance(network, Network):
        raise ValueError(f"the network must be a Network, got {type(network).__name__}: use Single(at_input(network))")


def check_alone(network: object, what: str = "robustness") -> None:
    check_is_network(network)
    assert isinstance(network, Network)
    if network.replicas != 1:
        raise ValueError(f"{what} is that of one network, got {network.replicas} replicas: split them first")


def check_network(network: Network, inputs: Points) -> int:
    """Evaluate the network on a few points; return its number of classes."""
    with torch.no_grad(), in_eval_mode(network):
        try:
            logits = network.logits(network.encode(inputs))
        except RuntimeError as error:
            shape = f"[{', '.join(map(str, inputs.shape[1:]))}]"
            # One image looks like a batch of matrices.
            alone = "; if this is one image, add a batch axis, x[None]" if inputs.ndim == 3 else ""
            raise ValueError(
                f"the network must take points of shape {shape} and type {inputs.dtype}, got an error from it: "
                f"{error}{alone}"
            ) from error
    if not logits.isfinite().all():
        raise ValueError("the network must return finite logits, got NaN or infinity on the first points")
    check_not_probabilities(logits)
    return int(logits.shape[-1])


def check_lets_gradients_through(values: Tensor, where: str) -> None:
    """Of values that a network computed, with gradients switched on."""
    if not values.requires_grad:
        raise ValueError(
            f"the network must let gradients through to its {where}, got answers cut off from them: leave out "
            ".detach(), torch.no_grad() and NumPy in its forward"
        )


def check_not_probabilities(logits: MemberLogits) -> None:
    """No member's rows may all be in [0, 1] and sum to 1."""
    logits = logits.detach()
    look_like = ((logits >= 0) & (logits <= 1)).all(-1) & ((logits.sum(-1) - 1).abs() < 1e-4)
    if bool(look_like.all(-1).any()):
        raise ValueError("the network must return logits, got rows that look like probabilities: remove its softmax")
