import copy

import pytest
import torch
from torch import Tensor, nn

from widemargin import Dataset, Single, at_input
from widemargin.measure.accuracy import accuracy, correct
from widemargin.rng import Rng

POINTS = Rng.seeded(0).uniform(torch.empty(50, 4))
LABELS = torch.arange(50) % 3


def network() -> Single:
    with Rng.seeded(3).as_global():
        return Single(
            at_input(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3)))
        )


def test_correct_and_accuracy() -> None:
    one = network().eval()
    found = correct(one, Dataset(POINTS, LABELS))
    assert found.tolist() == (one(POINTS).argmax(-1) == LABELS).tolist()
    assert accuracy(one, Dataset(POINTS, LABELS)) == found.sum().item() / 50


@pytest.mark.parametrize("rows", [1, 7, 50, 1000])
def test_batch_size_and_mode_do_not_matter_and_the_network_stays_as_it_is(rows: int) -> None:
    one = network().train()
    before = copy.deepcopy(one.state_dict())
    assert torch.equal(correct(one, Dataset(POINTS, LABELS), rows), correct(one, Dataset(POINTS, LABELS)))
    assert all(module.training for module in one.modules())
    assert all(torch.equal(value, before[name]) for name, value in one.state_dict().items())


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(torch.nan))

    def forward(self, points: Tensor) -> Tensor:
        return points[:, :3] * self.scale


def test_an_answer_that_is_not_a_number_is_wrong() -> None:
    assert accuracy(Single(at_input(Broken())), Dataset(POINTS, torch.arange(50) * 0 + 2)) == 0
