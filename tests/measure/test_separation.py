from pathlib import Path

import numpy as np
import pytest
import torch

from widemargin.data.columns import Columns
from widemargin.data.dataset import Dataset
from widemargin.data.local import TableData
from widemargin.data.local_files import Table
from widemargin.measure.separation import auto_radius, contradictions, duplicates, measured_rows, separation

distance = pytest.importorskip("scipy.spatial.distance")
METRICS = {"l2": "euclidean", "linf": "chebyshev", "l1": "cityblock"}


def table(rows: int = 90, classes: int = 3) -> Dataset:
    """Columns of very different scales, as tables have them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 4)) * (0.001, 1, 50, 2_000) + (0, 0, 0, 3_000)
    return Dataset(torch.tensor(x, dtype=torch.float32), torch.tensor(np.arange(rows) % classes))


@pytest.mark.parametrize("norm", METRICS)
def test_distances_are_those_of_scipy(norm: str) -> None:
    data = table()
    apart = distance.cdist(data.stored.double(), data.stored.double(), METRICS[norm])
    apart[data.labels[:, None] == data.labels] = np.inf
    done: list[int] = []
    result = separation(data, norm, on_progress=done.append)
    np.testing.assert_allclose(result.distances, apart.min(1), rtol=1e-6)
    np.testing.assert_array_equal(result.neighbors, apart.argmin(1))
    assert (result.exact, done[-1]) == (True, 90)
    some = separation(data, norm, rows=30)
    assert (some.exact, len(some.rows)) == (False, 30)
    np.testing.assert_allclose(some.distances, apart.min(1)[some.rows], rtol=1e-6)


def test_near_pairs_of_far_points_are_not_confused_by_rounding() -> None:
    far = torch.tensor([[5_000.0], [5_000.25], [5_000.125], [-5_000.0]])
    result = separation(Dataset(far, torch.tensor([0, 1, 1, 0])), "l2")
    assert result.neighbors.tolist() == [2, 0, 0, 2]
    assert result.distances.tolist() == [0.125, 0.25, 0.125, 10_000.125]


def test_the_data_stay_as_they_are() -> None:
    data = table()
    before = data.stored.clone()
    separation(data)
    assert torch.equal(data.stored, before)


def test_radii_and_closest_pairs() -> None:
    line = Dataset(torch.tensor([[0.0], [1.0], [4.0], [10.0]]), torch.tensor([0, 1, 0, 1]))
    result = separation(line)
    # Distances 1, 1, 3, 6: a pair stands once, whichever of the two is looked at.
    assert result.closest(2) == [(0, 1, 1.0), (1, 2, 3.0)]
    assert (result.smallest, result.radius(), result.radius(0.75)) == (1.0, 0.5, 1.5)
    assert result.quantile(0.5) == 2.0
    assert result.to_dict(1)["closest"] == [{"rows": [0, 1], "distance": 1.0}]


def test_a_radius_lets_at_most_that_share_of_the_balls_meet() -> None:
    result = separation(table())
    for share in (0.0, 0.01, 0.05, 0.5):
        assert (result.distances < 2 * result.radius(share)).mean() <= share


def test_copies_are_listed_and_those_with_other_labels() -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 2.0], [-0.0, 1.0], [2.0, 2.0], [5.0, 5.0]])
    data = Dataset(x, torch.tensor([0, 1, 1, 1, 0]))
    groups = duplicates(data)
    assert groups == [[0, 2], [1, 3]]
    assert contradictions(data, groups) == [[0, 2]]
    assert separation(data).smallest == 0


@pytest.mark.parametrize("norm", METRICS)
def test_groups_of_copies_are_measured_once(norm: str) -> None:
    rng = np.random.default_rng(0)
    distinct = rng.normal(size=(12, 3))
    places = rng.integers(0, 12, 600)
    data = Dataset(torch.tensor(distinct[places], dtype=torch.float32), torch.tensor(rng.integers(0, 2, 600)))
    apart = distance.cdist(data.stored.double(), data.stored.double(), METRICS[norm])
    apart[data.labels[:, None] == data.labels] = np.inf
    done: list[int] = []
    result = separation(data, norm, on_progress=done.append)
    np.testing.assert_allclose(result.distances, apart.min(1), rtol=1e-6)
    np.testing.assert_array_equal(apart[np.arange(600), result.neighbors], apart.min(1))
    assert done == [600], "12 inputs of 2 classes are one block, 600 rows would be three"
    # A pair of equal inputs stands once, however many rows have them.
    first = {row: rows[0] for rows in duplicates(data) for row in rows}
    pairs = [(first[one], first[two]) for one, two, _ in result.closest(20, first)]
    assert len({tuple(sorted(pair)) for pair in pairs}) == len(pairs)


def test_the_share_of_balls_that_meet() -> None:
    line = Dataset(torch.tensor([[0.0], [1.0], [4.0], [10.0]]), torch.tensor([0, 1, 0, 1]))
    assert [separation(line).meeting(radius) for radius in (0.4, 0.6, 1.6, 3.1)] == [0.0, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("share", [0.0, 0.05, 0.25])
def test_at_an_admissible_radius_no_more_balls_meet_than_it_says(share: float) -> None:
    # In steps of 1/16, as pixels are: many distances are the same.
    points = torch.randint(0, 16, (40, 2), generator=torch.Generator().manual_seed(0)) / 16
    result = separation(Dataset(points, torch.arange(40) % 2), "linf")
    assert result.meeting(result.radius(share)) <= share


def test_beyond_a_million_rows_some_are_measured() -> None:
    assert measured_rows(1_000_000) == 1_000_000
    assert measured_rows(1_000_001) == 10_000
    assert measured_rows(50, 80) == 50
    assert len(separation(table(), rows=9).rows) == 9
    assert separation(table(), rows=10**6).exact


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^norm must be one of linf, l2, l1.*, got 'l3'$"):
        separation(table(), "l3")
    with pytest.raises(ValueError, match="rows must be at least 1, got 0"):
        separation(table(), rows=0)
    with pytest.raises(ValueError, match="every example must have a label"):
        separation(table().hide_labels(torch.arange(3)))


def test_features_that_are_held_do_not_widen_the_radius(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    lines = [f"{k / 10},{'ab'[k // 10]},{k % 2}" for k in range(20)]
    path.write_text("\n".join(["x,kind,label", *lines]) + "\n")
    train = TableData(Table(str(path)), Columns(standardize=False), validation=0.1, test=0.1).draw().train
    free = Dataset(train.points[:, :1], train.labels, train.names)
    assert train.points.shape[1] == 3
    assert auto_radius("udp", train, "linf") == auto_radius("udp", free, "linf")
