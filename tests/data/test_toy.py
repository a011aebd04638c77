import pytest
import torch
from torch import Tensor

from widemargin import Dataset
from widemargin.data.toy import LMS5, FromSklearn, NarrowCorridor, PointSet, TwoDistances, TwoGaussians

SETS: list[tuple[PointSet, int, int, int]] = [
    (NarrowCorridor(), 66, 2, 2),
    (LMS5(), 200, 2, 2),
    (LMS5(seed=3, count=50), 50, 2, 2),
    (TwoDistances(), 80, 2, 2),
    (TwoGaussians(), 200, 1, 2),
    (FromSklearn("moons"), 200, 2, 2),
    (FromSklearn("circles", count=60), 60, 2, 2),
    (FromSklearn("blobs"), 200, 2, 3),
    (FromSklearn("gaussian_quantiles"), 200, 2, 3),
]


@pytest.mark.parametrize(("points", "rows", "features", "classes"), SETS, ids=[repr(row[0]) for row in SETS])
def test_equal_descriptions_draw_equal_points(points: PointSet, rows: int, features: int, classes: int) -> None:
    cloud, again = points.draw(), eval(repr(points)).draw()
    assert torch.equal(cloud.points, again.points)
    assert torch.equal(cloud.labels, again.labels)
    assert cloud.points.shape == (rows, features)
    assert cloud.classes == len(cloud.labels.unique()) == classes


@pytest.mark.parametrize("make", [LMS5, TwoDistances, TwoGaussians, lambda seed: FromSklearn("moons", seed)])
def test_other_seeds_draw_other_points(make: type) -> None:
    assert not torch.equal(make(seed=0).draw().points, make(seed=1).draw().points)


def by_brute_force(cloud: Dataset, p: float) -> Tensor:
    return torch.tensor(
        [
            min(
                torch.linalg.vector_norm((a - b).double(), p)
                for b, other in zip(cloud.points, cloud.labels, strict=True)
                if other != label
            )
            / 2
            for a, label in zip(cloud.points, cloud.labels, strict=True)
        ]
    )


@pytest.mark.parametrize("p", [1.0, 2.0, torch.inf])
@pytest.mark.parametrize("points", [NarrowCorridor(), FromSklearn("blobs", count=20)], ids=repr)
def test_best_margin_is_half_the_way_to_the_nearest_stranger(points: PointSet, p: float) -> None:
    cloud = points.draw()
    torch.testing.assert_close(cloud.best_margins(p), by_brute_force(cloud, p).float())


def test_corridor_widens_from_its_narrow_to_its_wide_end() -> None:
    cloud = NarrowCorridor().draw()
    lower, upper = cloud.points[cloud.labels == 0], cloud.points[cloud.labels == 1]
    widths = (upper - lower).abs()
    torch.testing.assert_close(widths[:, 0], torch.linspace(0.2, 1.0, 33))
    torch.testing.assert_close(widths[:, 0], widths[:, 1])
    assert cloud.best_margins().min().item() == pytest.approx(0.1079, abs=5e-5)


@pytest.mark.parametrize("points", [LMS5(), LMS5(seed=1, count=2000, linear_margin=0.2, slab_margin=0.05)], ids=repr)
def test_slabs_are_five_and_apart_by_twice_their_margin(points: LMS5) -> None:
    cloud = points.draw()
    (x0, y0), (x1, y1) = (cloud.points[cloud.labels == label].T for label in (0, 1))
    assert x0.max() <= -points.linear_margin
    assert x1.min() >= points.linear_margin
    assert cloud.points.abs().max() <= 1
    assert (y0[:, None] - y1[None]).abs().min() >= 2 * points.slab_margin - 1e-6

    order = cloud.points[:, 1].argsort()
    changes = cloud.labels[order].diff().count_nonzero()
    assert changes == 4, "from bottom to top the classes take turns in five slabs"


def test_classes_are_close_on_the_left_and_far_apart_on_the_right() -> None:
    cloud = TwoDistances().draw()
    x, y = cloud.points.T
    left, right = y[x < 0], y[x > 0]
    assert len(left) == len(right) == 40
    assert 0.1 <= left.abs().min() <= left.abs().max() <= 0.7
    assert 0.8 <= right.abs().min() <= right.abs().max() <= 1.4
    assert torch.equal((y > 0).long(), cloud.labels)


def test_gaussians_have_their_means_and_deviation() -> None:
    cloud = TwoGaussians(count=4000, deviation=0.3).draw()
    for label, mean in ((0, -1.0), (1, 1.0)):
        points = cloud.points[cloud.labels == label]
        assert points.mean().item() == pytest.approx(mean, abs=0.03)
        assert points.std().item() == pytest.approx(0.3, abs=0.02)


def test_unknown_set_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^FromSklearn.name must be one of moons, circles, .*, got 'sun'$"):
        FromSklearn("sun")
