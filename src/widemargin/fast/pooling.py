"""How does a network answer faster without answering otherwise?  Max-pooling over 2 x 2 by slices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.functional import max_pool2d


@contextmanager
def quick_pooling(network: nn.Module) -> Iterator[None]:
    """Every plain `nn.MaxPool2d(2)` gives the same values, several times faster on a processor (torch 2.13).

    It is a quarter of what a LeNet's answer costs.  Where gradients are asked for torch's own is no slower, and stays.
    """
    pools = [module for module in network.modules() if _is_plain(module) and "forward" not in vars(module)]
    for pool in pools:
        vars(pool)["forward"] = _halved
    try:
        yield
    finally:
        for pool in pools:
            del vars(pool)["forward"]


def _is_plain(module: nn.Module) -> bool:
    return type(module) is nn.MaxPool2d and (
        module.kernel_size in (2, (2, 2))
        and module.stride in (2, (2, 2))
        and module.padding in (0, (0, 0))
        and module.dilation in (1, (1, 1))
        and not module.return_indices
        and not module.ceil_mode
    )


def _halved(images: Tensor) -> Tensor:
    if images.requires_grad or images.device.type != "cpu":
        return max_pool2d(images, 2)
    # A last odd row or column belongs to no 2 x 2 pixels.
    images = images[..., : images.shape[-2] // 2 * 2, : images.shape[-1] // 2 * 2]
    rows = images[..., ::2, :].maximum(images[..., 1::2, :])
    return rows[..., ::2].maximum(rows[..., 1::2])
