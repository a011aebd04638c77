"""The LeNet of App. F, for square images, at any capacity."""

from collections import OrderedDict
from typing import final

from torch import nn

from widemargin.networks.resnet import check_dropout

# The second convolution is not padded; below this side its 5 x 5 kernel and the pooling would leave nothing.
_SMALLEST_UNPADDED = 12


@final
class LeNet(nn.Sequential):
    """`encoder` is the convolutional part, `head` the fully connected one.  Returns logits: no softmax.

    `capacity` multiplies the filters of both convolutions and the first fully connected layer (App. F.2).
    Images with a side below 12 get padding 2 in the second convolution too.  Pooling comes before the rectifier: the
    same numbers and gradients as in the order of App. F, on a quarter of the elements.
    `dropout`, which the paper's has not, follows the two hidden fully connected layers.
    """

    encoder: nn.Sequential
    head: nn.Sequential

    def __init__(
        self, classes: int = 10, channels: int = 1, side: int = 28, capacity: int = 1, dropout: float = 0.0
    ) -> None:
        check_lenet(classes, channels, side, capacity)
        check_dropout(dropout)
        first, second, hidden = 6 * capacity, 16 * capacity, 120 * capacity
        padding = 0 if side >= _SMALLEST_UNPADDED else 2
        encoded_side = (side // 2 - 4 + 2 * padding) // 2
        encoder = OrderedDict[str, nn.Module](
            conv1=nn.Conv2d(channels, first, 5, padding=2),
            pool1=nn.MaxPool2d(2),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(first, second, 5, padding=padding),
            pool2=nn.MaxPool2d(2),
            relu2=nn.ReLU(),
        )
        drops: list[dict[str, nn.Module]] = [{f"dropout{i}": nn.Dropout(dropout)} if dropout else {} for i in (1, 2)]
        head = OrderedDict[str, nn.Module](
            flatten=nn.Flatten(),
            linear1=nn.Linear(second * encoded_side**2, hidden),
            relu1=nn.ReLU(),
            **drops[0],
            linear2=nn.Linear(hidden, 84),
            relu2=nn.ReLU(),
            **drops[1],
            linear3=nn.Linear(84, classes),
        )
        super().__init__(OrderedDict(encoder=nn.Sequential(encoder), head=nn.Sequential(head)))


def check_lenet(classes: int, channels: int, side: int, capacity: int) -> None:
    if classes < 2 or channels < 1 or capacity < 1:
        raise ValueError(
            "a LeNet needs classes >= 2, channels >= 1 and capacity >= 1, "
            f"got classes={classes}, channels={channels}, capacity={capacity}"
        )
    if side < 4:
        raise ValueError(
            f"a LeNet halves its images twice, so side must be >= 4, got {side}: enlarge or pad the images"
        )
