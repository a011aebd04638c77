"""Networks in eval mode: their layers one after the other, and the quicker ways of `blocks` and `folding`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from timing import header, ratio, show
from torch import Tensor, fx, nn

from widemargin.networks.lenet import LeNet
from widemargin.networks.resnet import DropoutResNet18, PreActResNet18
from widemargin.runs.prepare import channels_last


def answer(network: nn.Module, images: Tensor) -> Callable[[], Tensor]:
    def ask() -> Tensor:
        with torch.no_grad():
            return network(images)  # type: ignore[no-any-return]

    return ask


def gradient(network: nn.Module, images: Tensor) -> Callable[[], Tensor]:
    def ask() -> Tensor:
        points = images.detach().requires_grad_()
        return torch.autograd.grad(network(points).square().sum(), points)[0]

    return ask


def layers_against_quick(name: str, network: nn.Module, images: Tensor) -> None:
    quick = channels_last(network).eval().requires_grad_(False)
    # A trace knows the layers only, which lie in memory just as before.
    layers = fx.symbolic_trace(quick)
    for what, of in (("answers", answer), ("gradients", gradient)):
        slow, fast = of(layers, images), of(quick, images)
        torch.testing.assert_close(fast(), slow(), rtol=1e-3, atol=1e-5)
        show(f"{name}, {what} of {len(images)}: layers -> quick", *ratio(slow, fast))


if __name__ == "__main__":
    header("Networks in eval mode")
    torch.manual_seed(0)
    layers_against_quick("LeNet", LeNet(), torch.rand(256, 1, 28, 28))
    layers_against_quick("PreActResNet18(width=16)", PreActResNet18(width=16), torch.rand(64, 3, 32, 32))
    layers_against_quick("DropoutResNet18(width=16)", DropoutResNet18(width=16), torch.rand(64, 3, 32, 32))
