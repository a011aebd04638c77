import pytest
import torch

from certified_cases import NORMS, normal
from widemargin.measure.certified.region import Region
from widemargin.perturb.balls import OPEN, UNIT
from widemargin.rng import Rng


@pytest.mark.parametrize("norm", NORMS)
def test_without_a_box_a_linear_function_falls_by_the_dual_norm(norm: type) -> None:
    rows = normal(4, 5)
    region = Region.around(normal(5, seed=1), norm(0.3, OPEN))
    torch.testing.assert_close(region.lowest(rows), -0.3 * norm(1.0).dual_norm(rows))
    # And reaches 0 from there at this radius.
    torch.testing.assert_close(region.reach(rows, -region.lowest(rows)), torch.full((4,), 0.3).double())


@pytest.mark.parametrize("norm", NORMS)
def test_no_sample_of_ball_and_box_is_below_what_a_region_says(norm: type) -> None:
    point, rows = torch.tensor([0.05, 0.5, 0.9, 1.0]).double(), normal(6, 4)
    ball = norm(0.4, UNIT)
    region = Region.around(point, ball)
    many = point.expand(2000, -1)
    delta = ball.sample(many, Rng.seeded(0))
    assert ((delta @ rows.T) >= region.lowest(rows) - 1e-9).all()
    interval = region.interval()
    assert (interval.low <= many + delta + 1e-9).all()
    assert (interval.high >= many + delta - 1e-9).all()
    # With less room a function falls less.
    assert (region.lowest(rows) >= Region.around(point, norm(0.4, OPEN)).lowest(rows) - 1e-12).all()
    assert (region.of_radius(0.1).lowest(rows) >= region.lowest(rows)).all()
