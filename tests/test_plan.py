import math

import pytest
import torch

from widemargin import Adam, Constant, Cosine, Plan
from widemargin.plan import Decay


@pytest.mark.parametrize(("decay", "rates"), [(Constant(), [2.0, 2.0, 2.0]), (Cosine(), [2.0, 1.0, 0.0])], ids=repr)
def test_the_rate_follows_its_decay(decay: Decay, rates: list[float]) -> None:
    adam = Adam(2.0, decay)
    optimizer = adam.build([torch.nn.Parameter(torch.zeros(1))])
    for done, rate in zip([0.0, 0.5, 1.0], rates, strict=True):
        adam.set_rate(optimizer, done)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan])
def test_bad_rate_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=rf"^Adam.rate must be in \(0, inf\), got {rate}$"):
        Adam(rate)


def test_a_plan_needs_an_update() -> None:
    with pytest.raises(ValueError, match=r"^Plan.updates must be at least 1, got 0$"):
        Plan(0, Adam(0.1))
