"""Networks in eval mode: the layers as they are, and the accelerated copy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from timing import header, ratio, show
from torch import Tensor, nn

from widemargin.fast import accelerated
from widemargin.networks.lenet import LeNet
from widemargin.networks.resnet import DropoutResNet18, PreActResNet18
from widemargin.runs.prepare import channels_last

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from foreign import ResNet18


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


def model_against_copy(name: str, network: nn.Module, images: Tensor) -> None:
    # In memory as in a run.
    model = channels_last(network).eval().requires_grad_(False)
    quick = accelerated(model, images)
    for what, of in (("logits", answer), ("gradients", gradient)):
        slow, fast = of(model, images), of(quick, images)
        torch.testing.assert_close(fast(), slow(), rtol=1e-3, atol=1e-5)
        show(f"{name}, {what} of {len(images)}: model -> copy", *ratio(slow, fast))


if __name__ == "__main__":
    header("Networks in eval mode")
    torch.manual_seed(0)
    model_against_copy("LeNet", LeNet(), torch.rand(256, 1, 28, 28))
    model_against_copy("PreActResNet18(width=16)", PreActResNet18(width=16), torch.rand(64, 3, 32, 32))
    model_against_copy("DropoutResNet18(width=16)", DropoutResNet18(width=16), torch.rand(64, 3, 32, 32))
    model_against_copy("a plain ResNet-18 (width 16)", ResNet18(16), torch.rand(64, 3, 32, 32))
    for count in (8, 64):
        model_against_copy("a plain ResNet-18 (width 64)", ResNet18(64), torch.rand(count, 3, 32, 32))
