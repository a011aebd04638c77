"""Water filling by Newton's method: how long features grow to a limit, or shrink, to make enough together."""

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


def time_to_shrink(size: Float[Tensor, "B features"], enough: PerSample) -> Float[Tensor, "B 1"]:
    """The smallest t >= 0 with sum of max(size - t, 0) <= enough: the threshold of a projection to the l1 ball.

    The sum is convex in t, so that Newton's method from the left never passes the solution either.
    """
    t = torch.zeros_like(enough)[:, None]
    least = 10 * torch.finfo(size.dtype).eps
    for _ in range(size.shape[1] + 1):
        left = (size - t).clamp_min_(0)
        over = left.sum(1) - enough
        shrinking = torch.gt(left, 0, out=left).sum(1)
        further = (over / shrinking).where((over > 0) & (shrinking > 0), 0.0)[:, None]
        moving = further > least * t
        if not bool(moving.any()):
            break
        t = (t + further).where(moving, t)
    return t
