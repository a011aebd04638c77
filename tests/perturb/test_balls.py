import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from widemargin import L1, L2, OPEN, Box, Linf
from widemargin.perturb.balls import UNIT, Ball
from widemargin.rng import Rng, RowRng

NORMS = [Linf, L2, L1]
every_norm = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)

dimensions = st.integers(1, 6)
numbers = st.floats(-3, 3, allow_subnormal=False).map(lambda x: 0.0 if abs(x) < 1e-9 else x)


@dataclass(frozen=True)
class Place:
    """A centre in a box, often on its edge, and a delta: plain numbers, since strategies must not build a Box."""

    radius: float
    bounds: tuple[tuple[float, ...], tuple[float, ...]] | None
    center: list[float]
    delta: list[float]

    def seen_by(self, norm: type) -> tuple[Ball, Tensor, Tensor]:
        box = OPEN if self.bounds is None else Box(*self.bounds)
        return norm(self.radius, box), *torch.tensor([[self.center], [self.delta]], dtype=torch.float64)


@st.composite
def places(draw: st.DrawFn) -> Place:
    d = draw(dimensions)
    vector = st.lists(numbers, min_size=d, max_size=d)
    gaps = st.lists(st.sampled_from([0.0, 0.05, 0.4, 1.0, math.inf]), min_size=d, max_size=d)
    center = draw(vector)
    low = tuple(c - g for c, g in zip(center, draw(gaps), strict=True))
    high = tuple(c + g for c, g in zip(center, draw(gaps), strict=True))
    assume(all(a < b for a, b in zip(low, high, strict=True)))
    radius = draw(st.sampled_from([0.0, 0.1, 0.7, 2.0, 50.0]))
    return Place(radius, draw(st.sampled_from([(low, high), None])), center, draw(vector))


def nearest_by_bisection(ball: Ball, delta: Tensor, center: Tensor) -> Tensor:
    """Lagrange: the nearest point is, for some multiplier >= 0, that of the box alone to the shrunken delta."""
    d = delta.numpy()
    down, up = (side.numpy() for side in ball.box.room(center))
    shrunken = {
        Linf: lambda t: d.clip(-ball.radius, ball.radius),
        L2: lambda t: d / (1 + t),
        L1: lambda t: np.sign(d) * (np.abs(d) - t).clip(0),
    }[type(ball)]
    order = {Linf: np.inf, L2: 2, L1: 1}[type(ball)]

    def at(t: float) -> np.ndarray:
        return shrunken(t).clip(down, up)

    def length(t: float) -> float:
        return float(np.linalg.norm(at(t)[0], order))

    if length(0) <= ball.radius:
        return torch.from_numpy(at(0))
    low, high = 0.0, 1e12
    for _ in range(200):
        middle = (low + high) / 2 if high < 1 else math.sqrt(max(low, 1e-12) * high)
        low, high = (middle, high) if length(middle) > ball.radius else (low, middle)
    return torch.from_numpy(at(high))


@every_norm
@given(place=places())
def test_projection_is_the_nearest_point_of_ball_and_box(norm: type, place: Place) -> None:
    ball, center, delta = place.seen_by(norm)
    projected = ball.project(delta, center)
    down, up = ball.box.room(center)
    assert (ball.norm(projected) <= ball.radius + 1e-12).all()
    assert ((projected >= down) & (projected <= up)).all()
    torch.testing.assert_close(projected, nearest_by_bisection(ball, delta, center), rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(ball.project(projected, center), projected, rtol=0, atol=1e-12)


@every_norm
@given(place=places())
def test_projection_leaves_alone_what_is_inside(norm: type, place: Place) -> None:
    ball, center, delta = place.seen_by(norm)
    inside = ball.project(delta, center) * 0.9
    torch.testing.assert_close(ball.project(inside, center), inside, rtol=1e-12, atol=1e-12)


@every_norm
@pytest.mark.parametrize("box", [UNIT, OPEN], ids=repr)
def test_projection_of_many_samples_of_any_shape_is_that_of_each_alone(norm: type, box: Box) -> None:
    ball = norm(0.6, box)
    center = Rng.seeded(0).uniform(torch.empty(20, 2, 3, dtype=torch.float64))
    delta = Rng.seeded(1).normal(center)
    together = ball.project(delta, center)
    assert together.shape == delta.shape
    for row in range(len(center)):
        alone = ball.project(delta[row : row + 1].flatten(1), center[row : row + 1].flatten(1))
        torch.testing.assert_close(together[row].flatten(), alone[0], rtol=0, atol=1e-14)


@pytest.mark.parametrize("norm", [Linf, L2, L1])
@pytest.mark.parametrize("box", [UNIT, OPEN, Box((0.0,) * 9, (1.0,) * 4 + (3.0,) * 5)], ids=["unit", "open", "own"])
def test_projection_takes_radii_of_the_samples_own(norm: type, box: Box) -> None:
    rng = torch.Generator().manual_seed(0)
    center, delta = torch.rand(30, 9, generator=rng).double(), torch.randn(30, 9, generator=rng).double()
    radii = torch.tensor([0.0, 0.1, 0.7, 2.0, 50.0]).double().repeat(6)
    together = norm(1.0, box).project(delta, center, radii)
    alone = [norm(float(r), box).project(delta[i : i + 1], center[i : i + 1])[0] for i, r in enumerate(radii)]
    torch.testing.assert_close(together, torch.stack(alone), rtol=0, atol=1e-12)


def test_l2_projection_keeps_its_precision_beside_a_feature_far_outside_the_box() -> None:
    """Squares of very different size must be summed from the small end."""
    ball, center = L2(0.15, Box((-0.1, -9.0), (0.1, 9.0))), torch.zeros(1, 2)
    projected = ball.project(torch.tensor([[1000.0, 0.2]]), center)
    torch.testing.assert_close(projected, torch.tensor([[0.1, math.sqrt(0.15**2 - 0.1**2)]]))


@every_norm
@given(gradient=st.lists(numbers, min_size=1, max_size=6))
def test_steepest_step_has_length_one_and_climbs_the_dual_norm(norm: type, gradient: list[float]) -> None:
    assume(any(gradient))
    ball, g = norm(1.0), torch.tensor([gradient]).double()
    step = ball.steepest(g)
    torch.testing.assert_close(ball.norm(step), torch.ones(1).double())
    torch.testing.assert_close((step * g).sum(1), ball.dual_norm(g))


@every_norm
def test_dual_norm_bounds_the_climb_of_every_step_of_length_one(norm: type) -> None:
    ball = norm(1.0)
    g = Rng.seeded(0).normal(torch.empty(1, 5, dtype=torch.float64))
    steps = Rng.seeded(1).normal(torch.empty(500, 5, dtype=torch.float64))
    steps = steps / ball.norm(steps)[:, None]
    assert ((steps * g).sum(1) <= ball.dual_norm(g) + 1e-12).all()


@every_norm
def test_without_gradient_there_is_no_step(norm: type) -> None:
    assert (norm(1.0).steepest(torch.zeros(2, 1, 3)) == 0).all()


@every_norm
@pytest.mark.parametrize("scale", [1e-44, 1e-38, 1e-20, 1e20, 1e30])
def test_steepest_step_survives_extreme_gradients(norm: type, scale: float) -> None:
    ball = norm(1.0)
    g = torch.tensor([[1.0, -3.0, 0.0, 2.0]]) * scale
    step = ball.steepest(g)
    torch.testing.assert_close(ball.norm(step), torch.ones(1))
    assert ((step * g.sign()) >= 0).all()


def uniform_distance(samples: Tensor) -> float:
    """Kolmogorov-Smirnov, times sqrt(n): above 1.95 with probability 0.001 for uniform samples."""
    ordered = samples.sort().values
    n = len(ordered)
    steps = torch.arange(n + 1, dtype=ordered.dtype) / n
    return float(torch.maximum((ordered - steps[:-1]).max(), (steps[1:] - ordered).max()) * math.sqrt(n))


@every_norm
@pytest.mark.parametrize("shape", [(1,), (3,), (2, 2)], ids=repr)
def test_samples_are_uniform_in_the_open_ball(norm: type, shape: tuple[int, ...]) -> None:
    ball = norm(2.0, OPEN)
    samples = ball.sample(torch.zeros(4000, *shape, dtype=torch.float64), Rng.seeded(0))
    features = math.prod(shape)
    lengths = ball.norm(samples)
    assert (lengths <= 2.0).all()
    assert uniform_distance((lengths / 2.0) ** features) < 1.95
    # The radius alone does not tell a ball from a ray: every orthant and, of a direction, every feature is as likely.
    flat = samples.flatten(1)
    assert abs((flat > 0).double().mean() - 0.5) < 2 / math.sqrt(flat.numel())
    largest = flat.abs().argmax(1).bincount(minlength=features) / len(flat)
    assert (largest - 1 / features).abs().max() < 2 / math.sqrt(len(flat))


def test_linf_samples_are_uniform_in_every_coordinate() -> None:
    samples = Linf(2.0, OPEN).sample(torch.zeros(2000, 3, dtype=torch.float64), Rng.seeded(0))
    assert all(uniform_distance((column + 2) / 4) < 1.95 for column in samples.T)


@every_norm
def test_samples_are_clamped_to_the_box(norm: type) -> None:
    center = torch.tensor([[0.0, 1.0, 0.5]]).expand(300, 3)
    points = center + norm(2.0, UNIT).sample(center, Rng.seeded(0))
    assert ((points >= 0) & (points <= 1)).all()
    assert (points == 0).any()
    assert (points == 1).any()


@pytest.mark.parametrize("radius", [-1.0, math.nan, math.inf])
@every_norm
def test_bad_radius_is_refused(norm: type, radius: float) -> None:
    with pytest.raises(ValueError, match=rf"^{norm.__name__}\.radius must be in \[0, inf\), got {radius}$"):
        norm(radius)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (1.0, 0.0, r"Box.low must be below Box.high, got 1.0 and 0.0"),
        (0.0, 0.0, r"Box.low must be below Box.high, got 0.0 and 0.0"),
        (math.nan, 1.0, r"Box.low must be below Box.high, got nan and 1.0"),
        ((0.0, 1.0), 1.0, r"Box.low must be below Box.high, got \(0.0, 1.0\) and 1.0"),
        ((0.0, 0.0), (1.0, 1.0, 1.0), r"Box.low and Box.high must be as many, got 2 and 3"),
    ],
)
def test_bad_box_is_refused(low: float, high: float, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Box(low, high)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Box((0, 1)), r"Box: missing a required argument: 'high': give two bounds, such as wm.Box\(0, 1\)"),
        (Box, r"Box: missing a required argument: 'low': give two bounds, such as wm.Box\(0, 1\)"),
        (lambda: Box(min=0, max=1), r"Box has no argument min: give two bounds, such as wm.Box\(0, 1\)"),
    ],
)
def test_a_box_of_other_arguments_gets_the_right_call(make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}$"):
        make()


@every_norm
def test_box_for_other_points_is_refused(norm: type) -> None:
    ball = norm(1.0, Box((0.0, 0.0), 1.0))
    with pytest.raises(ValueError, match=r"^the box has 2 intervals, but a point has 3 features$"):
        ball.project(torch.ones(1, 3), torch.zeros(1, 3))


@pytest.mark.parametrize(
    ("box", "text"),
    [
        (OPEN, "OPEN"),
        (UNIT, "UNIT"),
        (Box(0, 1), "UNIT"),
        (Box(-1.0, (1.0, 2.0)), "Box(low=-1.0, high=(1.0, 2.0))"),
    ],
)
def test_repr_of_a_box_is_its_name_or_its_bounds(box: Box, text: str) -> None:
    assert repr(box) == text
    assert eval(text) == box


def test_the_starts_of_an_attack_are_drawn_as_ever() -> None:
    """Bit for bit: every audit that was saved depends on them."""
    rng, like = RowRng(3, torch.arange(7)), torch.zeros(7, 2, 3)
    uniform, normal = rng.uniform(2, 3), rng.normal(2, 3)
    in_cube = 2 * uniform - 1
    assert torch.equal(Linf(0.3).draw_direction(rng, like), in_cube)
    largest = in_cube.flatten(1).abs().amax(1).view(-1, 1, 1)
    assert torch.equal(Linf(0.3).draw_surface(rng, like), in_cube * (0.3 / largest))
    assert torch.equal(L2(0.3).draw_direction(rng, like), normal)
    assert torch.equal(L2(0.3).draw_surface(rng, like), L2(0.3).steepest(normal) * 0.3)
    assert torch.equal(L1(0.3).draw_surface(rng, like), normal)


@pytest.mark.parametrize("features", [3, 7, 784])
def test_the_largest_l2_length_in_the_unit_ball_is_exact(features: int) -> None:
    like = torch.zeros(2, features)
    assert [norm(1.0).l2_reach(like) for norm in NORMS] == [features**0.5, 1.0, 1.0]


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("box", [(0, 1), None, "open"])
def test_a_box_is_a_box(box: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^Linf.box must be a Box, got .*: give .*wm.Box\(0, 1\), or wm.OPEN for none$"
    ):
        Linf(0.1, box)


@pytest.mark.parametrize("features", [1, 7, 9, 30, 31, 32, 50])
def test_the_largest_of_a_row_is_the_largest_whatever_its_length(features: int) -> None:
    delta = Rng.seeded(features).normal(torch.empty(20, features))
    assert torch.equal(Linf(1.0).norm(delta), delta.abs().amax(1))
    assert torch.equal(L1(1.0).dual_norm(delta), delta.abs().amax(1))


def test_a_projection_without_a_box_is_that_in_a_box_that_is_far_away() -> None:
    delta, center = Rng.seeded(1).normal(torch.empty(50, 9)).double(), torch.zeros(50, 9, dtype=torch.float64)
    for radii in (None, torch.rand(50, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 9):
        near, far = (L1(2.0, box).project(delta, center, radii) for box in (OPEN, Box(-100.0, 100.0)))
        torch.testing.assert_close(near, far)


def test_inward_leaves_out_what_points_out_of_the_box() -> None:
    gradient = Rng.seeded(3).normal(torch.empty(200, 4))
    points = Rng.seeded(4).uniform(torch.empty(200, 4)).mul(1.5).sub(0.25).clamp(0, 1)
    box = Box(0.0, 1.0).holding((2,))
    # The slow twin.
    out = (points <= 0) & (gradient < 0) | (points >= 1) & (gradient > 0)
    out[:, 2] = True
    assert bool(out[:, :2].any())
    assert torch.equal(box.inward(gradient, points), gradient.masked_fill(out, 0.0))
