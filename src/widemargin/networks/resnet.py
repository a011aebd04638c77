"""Two ResNets of 18 layers for small images, inputs not normalised."""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, final

from torch import nn


@final
class PreActResNet18(nn.Sequential):
    """Pre-activation ResNet-18 as in Andriushchenko & Flammarion (2020): CIFAR-10 and SVHN in the paper.

    Unlike He et al. (2016) it has neither normalisation nor ReLU after the last stage, and a bypass convolution takes
    what its block is given, not activated.  `encoder` ends with the last convolution and its bypass; `head` is the
    average over the image and the linear layer.  `width` is the number of filters of the first stage; it doubles three
    times.
    """

    encoder: nn.Sequential
    head: nn.Sequential

    def __init__(self, classes: int = 10, channels: int = 3, width: int = 64) -> None:
        check_resnet(classes, channels, width)
        encoder = OrderedDict[str, nn.Module](stem=nn.Conv2d(channels, width, 3, padding=1, bias=False))
        encoder.update(_stages(width, PreActBlock))
        head = nn.Sequential(_classifier(width, classes))
        super().__init__(OrderedDict(encoder=nn.Sequential(encoder), head=head))


@final
class DropoutResNet18(nn.Sequential):
    """Post-activation ResNet-18 with dropout after every ReLU (App. F): the paper's network for MC dropout.

    Each ReLU and dropout between two blocks is computed by the second of them, and those after the last block by the
    head: the same function, and the last dropout is still drawn when the latent space is perturbed.  Where the paper's
    table does not fit an 18-layer network ending in 512 features (blocks in the first stage, filters), ResNet-18 holds.
    """

    encoder: nn.Sequential
    head: nn.Sequential

    def __init__(self, classes: int = 10, channels: int = 3, width: int = 64, dropout: float = 0.2) -> None:
        check_resnet(classes, channels, width)
        check_dropout(dropout)
        encoder = OrderedDict[str, nn.Module](
            stem=nn.Conv2d(channels, width, 3, padding=1, bias=False),
            norm=nn.BatchNorm2d(width),
        )
        encoder.update(_stages(width, partial(DropoutBlock, dropout=dropout)))
        head = OrderedDict[str, nn.Module](relu=nn.ReLU(), dropout=nn.Dropout(dropout), **_classifier(width, classes))
        super().__init__(OrderedDict(encoder=nn.Sequential(encoder), head=nn.Sequential(head)))


@final
class PreActBlock(nn.Module):
    """Normalisation and ReLU come before each convolution but the bypass; the sum is returned as it is."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bypass = None if _same(inputs, outputs, stride) else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images: Any) -> Any:
        # In place, since nothing else needs what a normalisation or a convolution returned: a tenth less time.
        active = self.norm1(images).relu_()
        residual = self.conv2(self.norm2(self.conv1(active)).relu_())
        residual += images if self.bypass is None else self.bypass(images)
        return residual


@final
class DropoutBlock(nn.Module):
    """Takes and returns the sum before its ReLU and dropout."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.dropout1 = nn.Dropout(dropout)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.dropout2 = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.bypass: nn.Module = nn.Identity()
        if not _same(inputs, outputs, stride):
            self.bypass = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, images: Any) -> Any:
        active = self.dropout1(images.relu())
        residual = self.norm2(self.conv2(self.dropout2(self.norm1(self.conv1(active)).relu_())))
        residual += self.bypass(active)
        return residual


def check_resnet(classes: int, channels: int, width: int) -> None:
    if classes < 2 or channels < 1 or width < 1:
        raise ValueError(
            "a ResNet needs classes >= 2, channels >= 1 and width >= 1, "
            f"got classes={classes}, channels={channels}, width={width}"
        )


def check_dropout(dropout: float) -> None:
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is the probability of losing a feature and must be in [0, 1), got {dropout}")


def _stages(width: int, block: Callable[[int, int, int], nn.Module]) -> OrderedDict[str, nn.Module]:
    """Four stages of two blocks; each but the first halves the image and doubles the filters."""
    stages = OrderedDict[str, nn.Module](stage1=nn.Sequential(block(width, width, 1), block(width, width, 1)))
    for number, (inputs, outputs) in enumerate(pairwise(width * 2**i for i in range(4)), start=2):
        stages[f"stage{number}"] = nn.Sequential(block(inputs, outputs, 2), block(outputs, outputs, 1))
    return stages


def _classifier(width: int, classes: int) -> OrderedDict[str, nn.Module]:
    # For 32 x 32 images this is the 4 x 4 average of the paper's table; other sizes work too.
    return OrderedDict[str, nn.Module](
        pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), linear=nn.Linear(8 * width, classes)
    )


def _same(inputs: int, outputs: int, stride: int) -> bool:
    return inputs == outputs and stride == 1
