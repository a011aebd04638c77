import pytest
import torch
from torch import Tensor

from widemargin.perturb.filling import time_to_fill, time_to_shrink


def by_sorting(speed: Tensor, most: Tensor, enough: Tensor) -> Tensor:
    """The slow twin: the sum is linear between the times at which a feature has its most; look for the piece."""
    full = torch.where(speed > 0, most / speed, torch.inf)
    times = torch.cat([torch.zeros_like(full[:, :1]), full], 1).sort(1).values
    found = []
    for row in range(len(speed)):
        finite = times[row][times[row].isfinite()]
        sums = torch.stack([(t * speed[row]).minimum(most[row]).sum() for t in finite])
        piece = int((sums < enough[row]).sum()) - 1
        growing = speed[row][full[row] > finite[max(piece, 0)]].sum()
        if piece < 0:
            found.append(torch.zeros(()).double())
        elif growing == 0:
            found.append(finite[piece])
        else:
            found.append(finite[piece] + (enough[row] - sums[piece]) / growing)
    return torch.stack(found)[:, None]


@pytest.mark.parametrize("features", [1, 2, 7, 300])
def test_agrees_with_sorting(features: int) -> None:
    rng = torch.Generator().manual_seed(features)
    speed, most = torch.rand(2, 50, features, generator=rng, dtype=torch.float64)
    speed[:, ::3] *= (torch.rand(50, len(range(0, features, 3)), generator=rng) < 0.5).double()
    most[10:20] = torch.inf
    most[20:30, ::2] = 0.0
    enough = torch.rand(50, generator=rng, dtype=torch.float64) * 0.3 * features
    grown, known = (
        (t * speed).minimum(most) for t in (time_to_fill(speed, most, enough), by_sorting(speed, most, enough))
    )
    assert torch.allclose(grown, known, atol=1e-12)


def test_never_more_than_enough() -> None:
    rng = torch.Generator().manual_seed(0)
    speed, most = torch.rand(2, 1000, 784, generator=rng)
    enough = torch.rand(1000, generator=rng) * 300
    grown = (time_to_fill(speed, most, enough) * speed).minimum(most).sum(1)
    assert bool((grown <= enough * (1 + 1e-5)).all())
    assert torch.allclose(grown, enough.minimum(most.sum(1)), rtol=1e-5)


def test_what_cannot_grow_is_left_alone() -> None:
    nothing = torch.zeros(2, 3)
    assert torch.equal(time_to_fill(nothing, torch.full((2, 3), torch.inf), torch.ones(2)), torch.zeros(2, 1))


def test_where_there_is_not_enough_all_have_their_most() -> None:
    speed, most = torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[0.5, 0.25, torch.inf]])
    t = time_to_fill(speed, most, torch.tensor([10.0]))
    assert torch.equal((t * speed).minimum(most), torch.tensor([[0.5, 0.25, 0.0]]))


@pytest.mark.parametrize("features", [1, 2, 7, 300])
def test_shrinking_agrees_with_sorting(features: int) -> None:
    rng = torch.Generator().manual_seed(features)
    size = torch.rand(60, features, generator=rng, dtype=torch.float64) ** 3
    size[:10] *= 1e6
    size[10:20, ::2] = 0.0
    enough = torch.rand(60, generator=rng, dtype=torch.float64) * 0.3 * features
    enough[:5] = 0.0
    # The threshold is the largest of what each number of features alone would need.
    sums = size.sort(1, descending=True).values.cumsum(1) - enough[:, None]
    known = (sums / torch.arange(1, features + 1)).amax(1, keepdim=True).clamp_min(0)
    torch.testing.assert_close(time_to_shrink(size, enough), known, rtol=1e-12, atol=1e-12)
