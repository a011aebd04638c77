import pytest
import torch

from widemargin.data.dataset import Dataset, Origin
from widemargin.measure.neighbors import NEAREST, nearest_of_another_class

NOWHERE = Origin("made up", "none")


def examples(rows: int, classes: int) -> Dataset:
    rng = torch.Generator().manual_seed(rows)
    stored = torch.randint(0, 256, (rows, 3, 5, 5), generator=rng, dtype=torch.uint8)
    labels = torch.randint(0, classes, (rows,), generator=rng)
    return Dataset(stored, labels, tuple(range(classes)), NOWHERE, white=255)


@pytest.mark.parametrize("rows_at_once", [1, 7, 100])
def test_blocks_find_what_brute_force_finds(rows_at_once: int) -> None:
    found = examples(53, 4)
    flat = found.points.double().flatten(1)
    distances = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")
    distances[found.labels[:, None] == found.labels] = torch.inf
    done: list[int] = []
    neighbors = nearest_of_another_class(found, rows_at_once, done.append)
    assert torch.equal(neighbors.row, distances.argmin(1))
    torch.testing.assert_close(neighbors.distance, distances.amin(1), rtol=1e-6, atol=1e-6)
    assert done[-1] == 53


@pytest.mark.parametrize("norm", ["linf", "l1"])
@pytest.mark.parametrize("shape", [(3, 9, 10), (1, 4, 4), (7,)], ids=str)
@pytest.mark.parametrize("rows_at_once", [5, 200])
def test_in_other_norms_too(norm: str, shape: tuple[int, ...], rows_at_once: int) -> None:
    rng = torch.Generator().manual_seed(3)
    # Smooth images, as photographs are: their means tell most pairs apart.
    stored = (
        torch.rand(150, *(1 for _ in shape), generator=rng) * 150 + 100 * torch.rand(150, *shape, generator=rng)
    ).byte()
    labels = torch.randint(0, 3, (150,), generator=rng)
    found = Dataset(stored, labels, (0, 1, 2), NOWHERE, white=255)
    flat = found.points.double().flatten(1)
    distances = torch.cdist(flat, flat, p=torch.inf if norm == "linf" else 1.0)
    distances[labels[:, None] == labels] = torch.inf
    done: list[int] = []
    neighbors = NEAREST[norm](found, rows_at_once, done.append)
    torch.testing.assert_close(neighbors.distance, distances.amin(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(distances[torch.arange(150), neighbors.row], distances.amin(1), rtol=1e-6, atol=0)
    assert done[-1] == 150


def test_a_copy_with_another_label_is_at_distance_zero() -> None:
    stored = torch.full((2, 1, 4, 4), 200, dtype=torch.uint8)
    twins = Dataset(stored, torch.tensor([0, 1]), ("a", "b"), NOWHERE, white=255)
    for nearest in NEAREST.values():
        assert nearest(twins).distance.tolist() == [0.0, 0.0]


def test_one_class_has_no_other() -> None:
    alone = Dataset(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64), ("only",), NOWHERE)
    with pytest.raises(ValueError, match="needs at least 2 classes, got 1"):
        nearest_of_another_class(alone)
