import pytest
import torch

from widemargin import Dataset, Single, at_input
from widemargin.data.checks import UNLABELLED
from widemargin.measure.accuracy import accuracy

POINTS = torch.arange(8.0).view(4, 2)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([-1, -1, -1, -1], r"^at least one row must have a label, got none: nothing would say what the classes are$"),
        ([-2, 0, 1, -1], r"^labels must be in 0..1 for 2 classes, got -2..1$"),
        ([0, 1], r"^labels must have shape \[4\], one for every point, got \[2\]$"),
    ],
    ids=["none", "minus two", "too few"],
)
def test_bad_labels_are_refused(labels: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dataset(POINTS, torch.tensor(labels))


def test_nothing_is_measured_on_rows_without_a_label() -> None:
    partly = Dataset(POINTS, torch.tensor([0, 1, UNLABELLED, 0]))
    network = Single(at_input(torch.nn.Linear(POINTS.shape[1], 2)))
    with pytest.raises(ValueError, match="every row must have a label"):
        accuracy(network, partly)
    assert accuracy(network, partly.labelled()) <= 1
