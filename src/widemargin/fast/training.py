"""`sharing(network)`: a network over the same parameters, buffers and layers that a training computes with."""

from __future__ import annotations

import copy
from collections import OrderedDict

from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from widemargin.fast.blocks import PooledConvolution
from widemargin.fast.folding import may_fold, normalised, rectified
from widemargin.fast.pooling import is_halving
from widemargin.fast.stacking import StackedEnsemble, is_stackable
from widemargin.networks.hooks import any_hooked, hooked_as
from widemargin.networks.resnet import DropoutBlock, PreActBlock
from widemargin.uncertainty.cuts import is_chain
from widemargin.uncertainty.ensemble import Ensemble
from widemargin.uncertainty.network import Network


def sharing(network: Network) -> Network:
    """The network itself, or one that computes the same faster: whatever trains it trains the network.

    5 x 5 convolutions with a 2 x 2 pooling are computed on blocks, a ResNet's normalisations are folded while a search
    holds them fixed, small MLPs of an ensemble are stacked.  Only what contains such a part is copied; every other
    layer is the network's own, and so are all parameters and buffers.
    """
    quick = {id(part): made for part in network.modules() if (made := _quickened(part)) is not None}
    if id(network) in quick:
        return quick[id(network)]  # type: ignore[return-value]
    around = [part for part in network.modules() if any(id(inner) in quick for inner in part.modules())]
    copied = {id(part) for part in around}
    shared = [part for part in network.modules() if id(part) not in copied]
    held = [*shared, *network.parameters(), *network.buffers()]
    return copy.deepcopy(network, {id(one): one for one in held} | quick) if quick else network


def _quickened(part: nn.Module) -> nn.Module | None:
    if isinstance(part, Ensemble) and is_stackable(list(part.members)):
        return hooked_as(StackedEnsemble(part), part)
    if any_hooked(part):
        return None
    if isinstance(part, PreActBlock):
        return _FoldedPreActBlock(part)
    if isinstance(part, DropoutBlock):
        return _FoldedDropoutBlock(part)
    return _pooled(part) if is_chain(part) else None


def _pooled(chain: nn.Module) -> nn.Module | None:
    """Every convolution, 2 x 2 pooling and rectifier in a row as one layer, if there are any that are worth it."""
    names, layers = list(chain._modules), list(chain.children())
    made = OrderedDict[str, nn.Module]()
    while layers:
        three = layers[:3]
        one = PooledConvolution(three[0], three[1]) if _are_pooled(*three) else None  # type: ignore[arg-type]
        made[names[0]] = layers[0] if one is None else one
        taken = 1 if one is None else 3
        names, layers = names[taken:], layers[taken:]
    quick = nn.Sequential(made)
    quick.training = chain.training
    return quick if any(isinstance(layer, PooledConvolution) for layer in quick) else None


def _are_pooled(*layers: nn.Module) -> bool:
    if len(layers) < 3 or type_before_parametrizations(layers[0]) is not nn.Conv2d:
        return False
    conv, pool, relu = layers
    return conv.kernel_size == (5, 5) and is_halving(pool) and type(relu) is nn.ReLU


class _FoldedPreActBlock(nn.Module):
    """While its numbers are fixed the same up to rounding; with a gradient of the images a fifth less time."""

    def __init__(self, block: PreActBlock) -> None:
        super().__init__()
        self.block, self.training = block, block.training

    def forward(self, images: Tensor) -> Tensor:
        block = self.block
        if not may_fold(images, block.norm1, block.conv1, block.norm2):
            return block(images)  # type: ignore[no-any-return]
        active, scale = rectified(block.norm1, images)
        residual: Tensor = block.conv2(normalised(block.conv1, block.norm2, active, scale).relu_())
        residual += images if block.bypass is None else block.bypass(images)
        return residual


class _FoldedDropoutBlock(nn.Module):
    def __init__(self, block: DropoutBlock) -> None:
        super().__init__()
        self.block, self.training = block, block.training

    def forward(self, images: Tensor) -> Tensor:
        block = self.block
        if not may_fold(images, block.conv1, block.norm1, block.conv2, block.norm2):
            return block(images)  # type: ignore[no-any-return]
        active = block.dropout1(images.relu())
        inner = block.dropout2(normalised(block.conv1, block.norm1, active).relu_())
        residual = normalised(block.conv2, block.norm2, inner)
        residual += block.bypass(active)
        return residual
