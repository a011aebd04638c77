from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from widemargin.uncertainty.as_logits import AsLogits
from widemargin.uncertainty.wrap import as_network

POINTS = torch.tensor([[0.2, 0.8, 0.5], [0.9, 0.1, 0.4], [0.3, 0.4, 0.0]])


LOGITS = 3 * POINTS[:, :2]
X = torch.rand(4, 3)


def test_only_one_tensor_is_taken_out() -> None:
    class Answers(nn.Module):
        def __init__(self, answer: object) -> None:
            super().__init__()
            self.answer = answer

        def forward(self, inputs: Tensor) -> object:
            return self.answer

    for answer in ([LOGITS], (LOGITS, POINTS), {"logits": LOGITS}, SimpleNamespace(logits=LOGITS)):
        assert AsLogits(Answers(answer), "a").forward(POINTS) is LOGITS
    for wrong in ((), ("text", LOGITS), {"answer": LOGITS}, SimpleNamespace(logits=None), 3):
        with pytest.raises(ValueError, match="a must return logits as one tensor"):
            AsLogits(Answers(wrong), "a")(POINTS)


def test_inputs_that_the_module_overwrites_are_copied() -> None:
    network, x = as_network(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2))), X - 0.5
    before = x.clone()
    network(x)
    assert torch.equal(x, before)


def test_an_empty_batch_has_an_empty_answer() -> None:
    assert as_network(nn.Linear(3, 2))(X[:0]).shape == (0, 2)
