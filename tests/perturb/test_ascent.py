import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from lines import lead, line
from widemargin import L1, L2, OPEN, Linf
from widemargin.perturb.ascent import (
    Ascent,
    Fixed,
    Gaussian,
    InBall,
    LinearDecay,
    Misclassified,
    ProjectToBoundary,
    RandomFraction,
    Steepest,
    Uniform,
)
from widemargin.perturb.balls import UNIT
from widemargin.perturb.objectives import perturbed_gap, perturbed_log_entropy, perturbed_loss
from widemargin.perturb.search import Search
from widemargin.rng import Rng

NORMS = [Linf, L2, L1]
every_norm = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
weights = st.lists(st.floats(-2, 2), min_size=3, max_size=3)
WEIGHTS = [1.0, -2.0, 0.5]


def climb(search: Search, point: list[float], slope: list[float], label: int = 0, rows: int = 1) -> Tensor:
    points = torch.tensor([point], dtype=torch.float64).expand(rows, -1)
    return search(line(slope), points, torch.full((rows,), label), Rng.seeded(0)).delta


@every_norm
@settings(max_examples=20)
@given(slope=weights, point=weights, size=st.floats(0.01, 0.5))
def test_uncertainty_stops_within_a_step_of_the_boundary_and_never_crosses_by_more(
    norm: type, slope: list[float], point: list[float], size: float
) -> None:
    assume(max(map(abs, slope)) > 0.1)
    network, ball = line(slope), norm(100.0, OPEN)
    points = torch.tensor([point], dtype=torch.float64).expand(8, -1)
    steepness = ball.dual_norm(torch.tensor([slope], dtype=torch.float64))
    before = lead(network, points) / steepness
    most = 20
    search = Search(perturbed_log_entropy, ball, Ascent(Uniform(1, most), Steepest(size)))
    delta = search(network, points, torch.zeros(8, dtype=torch.long), Rng.seeded(0)).delta
    after = lead(network, points + delta) / steepness
    taken = Uniform(1, most).draw(8, Rng.seeded(0)).double()
    crossed = (after * before.sign()) < 0
    assert (after[crossed].abs() <= size * (1 + 1e-9)).all()
    arrived = taken * size >= before.abs()
    assert (after[arrived].abs() <= size * (1 + 1e-9)).all()
    torch.testing.assert_close(after[~arrived].abs(), (before.abs() - taken * size)[~arrived], rtol=0, atol=1e-9)


@every_norm
@given(slope=weights, point=weights)
def test_one_projection_step_lands_on_the_boundary_of_a_linear_model(
    norm: type, slope: list[float], point: list[float]
) -> None:
    assume(max(map(abs, slope)) > 0.1)
    network, ball = line(slope), norm(100.0, OPEN)
    points = torch.tensor([point], dtype=torch.float64)
    search = Search(-perturbed_gap, ball, Ascent(Fixed(1), ProjectToBoundary(100.0)))
    delta = search(network, points, torch.zeros(1, dtype=torch.long), Rng.seeded(0)).delta
    steepness = ball.dual_norm(torch.tensor([slope], dtype=torch.float64))
    torch.testing.assert_close(lead(network, points + delta), torch.zeros(1).double(), rtol=0, atol=1e-9)
    torch.testing.assert_close(ball.norm(delta), lead(network, points).abs() / steepness, rtol=1e-9, atol=1e-9)


def test_projection_steps_reach_the_boundary_inside_a_box() -> None:
    """The lead is 3 x + y - .7 from (.1, .9): x can only go down by .1, so y must go the rest of the way."""
    search = Search(-perturbed_gap, L2(5.0, UNIT), Ascent(Fixed(6), ProjectToBoundary(5.0)))
    network = line([3.0, 1.0], -0.7)
    delta = search(network, torch.tensor([[0.1, 0.9]]).double(), torch.tensor([0]), Rng.seeded(0)).delta
    torch.testing.assert_close(delta, torch.tensor([[-0.1, -0.2]]).double())


def test_projection_step_is_no_longer_than_its_longest() -> None:
    search = Search(-perturbed_gap, L2(100.0, OPEN), Ascent(Fixed(1), ProjectToBoundary(0.5)))
    delta = climb(search, [3.0, 0.0, 0.0], [1.0, 0.0, 0.0])
    torch.testing.assert_close(delta, torch.tensor([[-0.5, 0.0, 0.0]]).double())


@pytest.mark.parametrize(("steps", "way"), [(1, 0.3), (2, 0.3 + 0.1), (3, 0.3 + 0.2 + 0.1)])
def test_fading_steps_go_from_first_to_last(steps: int, way: float) -> None:
    search = Search(perturbed_loss, L2(9.0, OPEN), Ascent(Fixed(steps), LinearDecay(0.3, 0.1)))
    torch.testing.assert_close(L2(1.0).norm(climb(search, [0.0, 0.0, 0.0], WEIGHTS)), torch.tensor([way]).double())


@pytest.mark.parametrize("patience", [0, 1, 3])
def test_who_has_crossed_takes_as_many_steps_as_patience_allows(patience: int) -> None:
    # Steps of 1 from -2.5 reach 0.5 with the third; the fourth would find the sample misclassified.
    search = Search(perturbed_loss, Linf(50.0, OPEN), Ascent(Fixed(10), Steepest(1.0), until=Misclassified(patience)))
    assert climb(search, [-2.5], [1.0]).item() == 3 + patience


def test_who_is_misclassified_from_the_start_does_not_move() -> None:
    search = Search(perturbed_loss, Linf(50.0, OPEN), Ascent(Fixed(10), Steepest(1.0), until=Misclassified()))
    assert climb(search, [2.5], [1.0]).item() == 0


def test_patience_never_adds_steps() -> None:
    search = Search(perturbed_loss, Linf(50.0, OPEN), Ascent(Fixed(2), Steepest(1.0), until=Misclassified(7)))
    assert climb(search, [2.5], [1.0]).item() == 2


def test_kept_parts_are_uniform() -> None:
    """On a line the whole way is known; four bins of 1000 draws, each within four deviations."""
    search = Search(
        -perturbed_gap, L2(9.0, OPEN), Ascent(Fixed(1), ProjectToBoundary(9.0), fraction=RandomFraction(0.2, 0.6))
    )
    shares = climb(search, [-2.0], [1.0], rows=4000)[:, 0] / 2.0
    whole = search(line([1.0]), torch.tensor([[-2.0]]).double(), torch.tensor([0]), Rng.seeded(0)).distance
    torch.testing.assert_close(whole, torch.tensor([2.0]).double())
    counts = torch.histc(shares, 4, 0.2, 0.6)
    assert counts.sum() == 4000
    assert (counts - 1000).abs().max() < 4 * math.sqrt(1000 * 0.75)


def test_numbers_of_steps_are_uniform_with_both_ends() -> None:
    drawn = Uniform(2, 5).draw(4000, Rng.seeded(0))
    assert drawn.unique().tolist() == [2, 3, 4, 5]
    assert (drawn.bincount()[2:] - 1000).abs().max() < 4 * math.sqrt(1000 * 0.75)


def test_gaussian_start_has_its_scale() -> None:
    start = Gaussian(0.01)(L2(1.0, OPEN), torch.zeros(5000, 2), Rng.seeded(0))
    assert start.mean().abs() < 5e-4
    assert abs(start.std() - 0.01) < 5e-4


def test_the_start_is_projected_into_ball_and_box() -> None:
    """The Gaussian start is far outside the ball; the single step is too short to bring it back."""
    ball = L2(0.1)
    search = Search(perturbed_loss, ball, Ascent(Fixed(1), Steepest(1e-9), Gaussian(5.0)))
    delta = climb(search, [0.0, 0.5, 1.0], WEIGHTS, rows=50)
    assert (ball.norm(delta) <= 0.1 + 1e-12).all()
    assert (delta[:, 0] >= 0).all()
    assert (delta[:, 2] <= 0).all()


def test_random_start_is_where_the_gradient_is_taken() -> None:
    """R-FGSM: a start beyond the boundary climbs back to it, one before it climbs forth."""
    search = Search(perturbed_log_entropy, Linf(1.0, OPEN), Ascent(Fixed(1), Steepest(0.1), InBall()))
    delta = climb(search, [0.0], [1.0], rows=200)
    start = InBall()(Linf(1.0, OPEN), torch.zeros(200, 1).double(), Rng.seeded(0))
    torch.testing.assert_close(delta, start - 0.1 * start.sign())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fixed(0), r"Fixed.most must be a whole number of at least 1 step, got 0"),
        (lambda: Uniform(0, 3), r"Uniform.least must be a whole number of at least 1 step, got 0"),
        (lambda: Uniform(3, 2), r"Uniform.most must be at least Uniform.least = 3, got 2"),
        (lambda: Steepest(0.0), r"Steepest.size must be in \(0, inf\), got 0.0"),
        (lambda: Steepest(math.nan), r"Steepest.size must be in \(0, inf\), got nan"),
        (lambda: LinearDecay(-1.0, 0.1), r"LinearDecay.first must be in \(0, inf\), got -1.0"),
        (lambda: LinearDecay(1.0, math.inf), r"LinearDecay.last must be in \(0, inf\), got inf"),
        (lambda: ProjectToBoundary(0.0), r"ProjectToBoundary.longest must be in \(0, inf\), got 0.0"),
        (lambda: Gaussian(-1e-3), r"Gaussian.scale must be in \(0, inf\), got -0.001"),
        (lambda: Misclassified(-1), r"Misclassified.patience must be at least 0, got -1"),
        (lambda: RandomFraction(0.5, 0.5), r"RandomFraction needs 0 <= least < most <= 1, got 0.5 and 0.5"),
        (lambda: RandomFraction(-0.1, 0.5), r"RandomFraction needs 0 <= least < most <= 1, got -0.1 and 0.5"),
        (lambda: RandomFraction(0.5, 1.1), r"RandomFraction needs 0 <= least < most <= 1, got 0.5 and 1.1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_parts_are_refused_in_one_sentence(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        make()
