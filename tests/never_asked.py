"""A network that no one may ask about no points."""

import torch
from torch import Tensor, nn

from widemargin import Single, at_input
from widemargin.perturb.balls import L1, L2, Linf
from widemargin.uncertainty.network import Network

CLASSES, SIDE, COUNT = 4, 4, 6


REFUSED = "cannot reshape tensor of 0 elements"


class Flattening(nn.Module):
    """As many networks do, by a `view` that torch refuses of an empty batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIDE * SIDE, CLASSES)
        with torch.no_grad():
            self.linear.weight.copy_(torch.randn(CLASSES, SIDE * SIDE, generator=torch.Generator().manual_seed(0)))
            self.linear.bias.copy_(-self.linear.weight.sum(1) / 2)

    def forward(self, points: Tensor) -> Tensor:
        found: Tensor = self.linear(points.view(points.size(0), -1))
        return found


def network() -> Network:
    return Single(at_input(Flattening())).eval()


POINTS = torch.rand(COUNT, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
with torch.no_grad():
    RIGHT = network()(POINTS).argmax(1)
# All right, none, and some.
LABELS = {"all": RIGHT, "none": (RIGHT + 1) % CLASSES, "some": torch.where(torch.arange(COUNT) % 3 > 0, RIGHT, 0)}


# Everybody breaks, nobody does, and some do.
RADII = {"broken": 20.0, "unbroken": 1e-6, "between": 0.3}


NORMS: dict[str, type[Linf] | type[L2] | type[L1]] = {"linf": Linf, "l2": L2, "l1": L1}


CASES = [("linf", radius, labels) for radius in RADII for labels in LABELS]
