"""Water filling by Newton's method: how long features grow, each up to a limit, to make enough together."""

import torch
from jaxtyping import Float
from torch import Tensor

from widemargin.shapes import PerSample


def time_to_fill(
    speed: Float[Tensor, "B features"], most: Float[Tensor, "B features"], enough: PerSample
) -> Float[Tensor, "B 1"]:
    """The smallest t with sum of min(t speed, most) = enough, or one at which all that grows has its most.

    The sum is concave in t and has finitely many pieces, so that Newton's method from the left never passes the
    solution and ends on its piece: a handful of rounds, where sorting the features costs as much as a small network.
    """
    grown = torch.gt(most, 0, out=torch.empty_like(speed))
    together = grown.mul_(speed).sum(1)
    t = (enough / together).where(together > 0, 0.0)[:, None]
    # What is lost to rounding is not worth a round.
    least = 10 * torch.finfo(speed.dtype).eps
    for _ in range(speed.shape[1]):
        torch.minimum(torch.mul(t, speed, out=grown), most, out=grown)
        lacking = enough - grown.sum(1)
        # Truths as numbers, and all in one place: several times faster than a mask.
        growing = torch.lt(grown, most, out=grown).mul_(speed).sum(1)
        further = (lacking / growing).where(growing > 0, 0.0)[:, None]
        moving = further > least * t
        if not bool(moving.any()):
            break
        t = (t + further).where(moving, t)
    return t
