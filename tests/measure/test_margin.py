import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from widemargin import Dataset, Single, at_input
from widemargin.measure.boundary import Window
from widemargin.measure.margin import Margins, margins
from widemargin.rng import Rng
from widemargin.uncertainty.network import Network

POINTS = 2 * Rng.seeded(0).uniform(torch.empty(12, 2)) - 1


CLOUD = Dataset(POINTS, torch.arange(12) % 2)


def linear(weight: list[list[float]], bias: list[float]) -> Network:
    layer = nn.Linear(2, len(weight)).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight, dtype=torch.float64))
        layer.bias.copy_(torch.tensor(bias, dtype=torch.float64))
    return Single(at_input(layer))


class Disc(nn.Module):
    """Inside a circle the first class leads by radius^2 - |x|^2."""

    def __init__(self, radius: float) -> None:
        super().__init__()
        self.radius = nn.Parameter(torch.tensor(radius, dtype=torch.float64))

    def forward(self, points: Tensor) -> Tensor:
        inside = self.radius**2 - (points**2).sum(1)
        return torch.stack([inside, torch.zeros_like(inside)], 1)


@settings(max_examples=10)
@given(angle=st.floats(0, 2 * math.pi), offset=st.floats(-0.5, 0.5))
def test_margins_of_a_line_are_the_signed_distances_to_it(angle: float, offset: float) -> None:
    """The foot of every perpendicular must lie in the window, which reaches past the cloud by its best margin."""
    normal = np.array([math.cos(angle), math.sin(angle)])
    signed = CLOUD.points.double().numpy() @ normal - offset
    window = Window.around(CLOUD)
    feet = CLOUD.points.double().numpy() - signed[:, None] * normal
    within = (feet > [window.left, window.bottom]).all(1) & (feet < [window.right, window.top]).all(1)
    assume(within.sum() > 3)
    measured = margins(linear([[0.0, 0.0], normal.tolist()], [0.0, -offset]), CLOUD, resolution=41).margin
    expected = np.where(CLOUD.labels == 1, signed, -signed)
    np.testing.assert_allclose(measured[within], expected[within], atol=1e-6)
    assert (np.sign(measured) == np.sign(expected)).all()


@pytest.mark.parametrize("radius", [0.4, 0.8])
def test_margins_of_a_circle_are_the_signed_distances_to_it(radius: float) -> None:
    measured = margins(Single(at_input(Disc(radius))), CLOUD, resolution=101).margin
    outside = CLOUD.points.double().norm(dim=1).numpy() - radius
    np.testing.assert_allclose(measured, np.where(CLOUD.labels == 1, outside, -outside), atol=1e-5)


@pytest.mark.parametrize("angle", [0.0, 0.3, math.pi / 4, 1.2, math.pi / 2])
def test_margins_in_linf_are_shorter_by_the_l1_norm_of_the_normal(angle: float) -> None:
    normal = np.array([math.cos(angle), math.sin(angle)])
    points = 0.3 * CLOUD.points
    signed = points.double().numpy() @ normal / np.abs(normal).sum()
    found = margins(linear([[0.0, 0.0], normal.tolist()], [0.0, 0.0]), Dataset(points, CLOUD.labels), 41, p=math.inf)
    reached = np.abs(signed) < 0.1
    assert reached.sum() > 1
    np.testing.assert_allclose(found.margin[reached], np.where(CLOUD.labels == 1, signed, -signed)[reached], atol=1e-6)
    np.testing.assert_allclose(found.best, Dataset(points, CLOUD.labels).best_margins(math.inf).double(), atol=1e-6)


def test_margins_of_a_circle_in_linf_are_those_of_a_dense_search() -> None:
    around = np.linspace(0, 2 * math.pi, 200_001)
    circle = 0.8 * np.stack([np.cos(around), np.sin(around)], 1)
    expected = [np.abs(circle - point).max(1).min() for point in CLOUD.points.double().numpy()]
    found = margins(Single(at_input(Disc(0.8))), CLOUD, resolution=101, p=math.inf).margin
    np.testing.assert_allclose(np.abs(found), expected, atol=1e-5)


def test_margins_in_other_norms_are_refused() -> None:
    with pytest.raises(ValueError, match=r"in l2 \(p = 2\) or l-infinity \(p = inf\), got p = 1"):
        margins(Single(at_input(Disc(0.8))), CLOUD, p=1.0)


def test_three_classes_have_margins_to_the_nearest_of_their_rivals() -> None:
    """Three sectors: x is ahead, -x is ahead, or y is ahead of both."""
    cloud = Dataset(torch.tensor([[0.8, 0.1], [-0.7, 0.0], [0.0, 0.9], [0.1, -0.8]]), torch.tensor([0, 1, 2, 0]))
    network = linear([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], [0.0, 0.0, 0.0])
    diagonal = math.sqrt(0.5)
    expected = [0.7 * diagonal, 0.7 * diagonal, 0.9 * diagonal, 0.1]
    np.testing.assert_allclose(margins(network, cloud, resolution=101).margin, expected, atol=1e-5)


@pytest.mark.parametrize(("winner", "signs"), [(0, [1, -1]), (1, [-1, 1])])
def test_without_a_boundary_margins_are_infinite_and_errors_still_count(winner: int, signs: list[int]) -> None:
    cloud = Dataset(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([0, 1]))
    network = linear([[0.0, 0.0], [0.0, 0.0]], [1.0 - winner, float(winner)])
    measured = margins(network, cloud, resolution=21)
    assert measured.margin.tolist() == [sign * math.inf for sign in signs]
    assert (measured.errors, measured.accuracy) == (1, 0.5)
    assert (measured.min, measured.median, measured.mean) == (-math.inf, -math.inf, -math.inf)
    assert (measured.worst_fraction, measured.mean_fraction) == (-math.inf, -math.inf)


@pytest.mark.filterwarnings("error")
def test_where_points_of_two_classes_coincide_all_that_is_possible_is_no_margin() -> None:
    measured = Margins(np.array([0.0, 0.3, 0.4]), np.array([0.0, 0.0, 0.8]), exact=False)
    assert measured.fraction.tolist() == [0, 1, 0.5]
    assert (measured.worst_fraction, measured.median_fraction, measured.mean_fraction) == (0, 0.5, 0.5)
    assert (measured.min, measured.median) == (0, 0.3)


@pytest.mark.filterwarnings("error")
def test_of_one_class_there_are_distances_and_no_fractions() -> None:
    measured = Margins(np.array([0.1, math.inf, 0.4]), np.full(3, math.inf), exact=False)
    assert (measured.min, measured.median, measured.mean) == (0.1, 0.4, math.inf)
    for name in ("fraction", "worst_fraction", "median_fraction", "mean_fraction"):
        with pytest.raises(ValueError, match=r"need points of at least 2, got 1; take min, median and mean"):
            getattr(measured, name)


def test_summaries_are_shares_of_the_best_margins() -> None:
    """Four points on a line, classes at -1 and -3 against +1 and +2: best margins 1, 2, 1 and 1.5."""
    cloud = Dataset(torch.tensor([[-1.0, 0.0], [-3.0, 0.1], [1.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 0, 1, 1]))
    measured = margins(linear([[0.0, 0.0], [1.0, 0.0]], [0.0, 0.5]), cloud, resolution=51)
    np.testing.assert_allclose(measured.margin, [0.5, 2.5, 1.5, 2.5], atol=1e-6)
    np.testing.assert_allclose(measured.fraction, [0.5, 1.0, 1.0, 1.0], atol=1e-6)
    assert measured.worst_fraction == pytest.approx(0.5)
    assert measured.median_fraction == pytest.approx(1.0)
    assert measured.mean_fraction == pytest.approx(3.5 / 4)
    assert (measured.min, measured.median, measured.mean) == pytest.approx((0.5, 1.5, 1.75))
    assert measured.accuracy == 1


def test_measuring_leaves_the_network_as_it_was() -> None:
    network = Single(at_input(nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))))
    network.train().head[1].eval()
    before = [module.training for module in network.modules()]
    margins(network, CLOUD, resolution=11, refinements=1)
    assert [module.training for module in network.modules()] == before
    assert network.head[1].num_batches_tracked == 0
