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

    The sum is convex in t, so that Newton's method from the left never passes the solution either.  It begins where
    the largest alone is small enough, or all of them if none is held at 0, whichever is later.
    """
    # Features first: a sum over rows is several times faster than one over short columns.
    size = size.t().contiguous()
    t = (size.amax(0) - enough).maximum((size.sum(0) - enough) / len(size)).clamp_min_(0)
    least = 10 * torch.finfo(size.dtype).eps
    left = torch.empty_like(size)
    for _ in range(len(size) + 1):
        torch.sub(size, t, out=left).clamp_min_(0)
        over = (left.sum(0) - enough).clamp_min_(0)
        further = over / left.sign_().sum(0).clamp_min_(1)
        if not bool((further > least * t).any()):
            break
        t = t + further
    return t[:, None]
