import pytest
import torch

from widemargin.data.labelled import Labelled, Origin
from widemargin.measure.neighbors import nearest_of_another_class

NOWHERE = Origin("made up", "none")


def examples(rows: int, classes: int) -> Labelled:
    rng = torch.Generator().manual_seed(rows)
    stored = torch.randint(0, 256, (rows, 3, 5, 5), generator=rng, dtype=torch.uint8)
    labels = torch.randint(0, classes, (rows,), generator=rng)
    return Labelled(stored, labels, tuple(range(classes)), NOWHERE, white=255)


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


def test_a_copy_with_another_label_is_at_distance_zero() -> None:
    stored = torch.full((2, 1, 4, 4), 200, dtype=torch.uint8)
    twins = Labelled(stored, torch.tensor([0, 1]), ("a", "b"), NOWHERE, white=255)
    assert nearest_of_another_class(twins).distance.tolist() == [0.0, 0.0]


def test_one_class_has_no_other() -> None:
    alone = Labelled(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64), ("only",), NOWHERE)
    with pytest.raises(ValueError, match="needs at least 2 classes, got 1"):
        nearest_of_another_class(alone)
