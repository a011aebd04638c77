import pytest
import torch
from torch import Tensor

from widemargin.data.checks import UNLABELLED
from widemargin.data.coerce import placed, whole
from widemargin.data.dataset import Dataset, Subset, row_numbers

POINTS = torch.arange(8.0).view(4, 2)


def test_only_known_rows_show_their_class() -> None:
    hidden = Dataset(POINTS, torch.tensor([0, 1, 0, 1])).hide_labels(torch.tensor([1, 2]))
    assert hidden.labels.tolist() == [UNLABELLED, 1, 0, UNLABELLED]
    points, labels = hidden[torch.tensor([3, 1])]
    assert len(hidden) == 4
    assert torch.equal(points, POINTS[[3, 1]])
    assert labels.tolist() == [UNLABELLED, 1]


@pytest.mark.parametrize(
    ("points", "labels", "message"),
    [
        (torch.zeros(2, 2), torch.tensor([0.0, 1.0]), "labels must be whole numbers"),
        (torch.zeros(2, 2), torch.tensor([0, 1, 1]), r"labels must have shape \[2\]"),
        (torch.zeros(2, 2), torch.tensor([], dtype=torch.int64), r"labels must have shape \[2\]"),
        (torch.zeros(2, 2), torch.tensor([-2, 1]), "labels must be in 0..1"),
        (torch.full((2, 2), torch.nan), torch.tensor([0, 1]), "points must be finite"),
        (torch.zeros(2, 2, dtype=torch.int64), torch.tensor([0, 1]), "points must be floating-point"),
    ],
)
def test_bad_clouds_are_refused(points: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        Dataset(points, labels)


X = torch.tensor([[0.0, 0.5], [1.0, 0.25], [0.5, 0.0]])


Y = torch.tensor([0, 2, 1])


def test_a_subset_is_made_whole() -> None:
    subset = Subset(Subset(Dataset(X, Y), torch.tensor([2, 0])), torch.tensor([1, 0]))
    assert torch.equal(whole(subset).stored, X[[0, 2]])


def test_a_subset_may_have_other_inputs_in_place_of_its_rows() -> None:
    moved = 10 + X[[0, 0, 1]]
    subset = Subset(Dataset(X, Y), torch.tensor([2, 2, 0]), moved)
    inputs, labels = subset[torch.tensor([0, 2])]
    assert torch.equal(inputs, moved[[0, 2]])
    assert torch.equal(labels, Y[[2, 0]])
    assert row_numbers(subset, torch.arange(3)).tolist() == [2, 2, 0]
    assert torch.equal(whole(subset).points, moved)
    double = placed(subset, X.device, torch.float64)
    assert double[torch.arange(3)][0].dtype == torch.float64
