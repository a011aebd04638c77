import torch
from torch import nn

from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.log_probabilities import LogProbabilities
from widemargin.uncertainty.single import Single


def test_logs_of_probabilities_are_logits_of_the_same_answer() -> None:
    layer, points = nn.Linear(3, 4), torch.randn(6, 3)
    network = LogProbabilities(Single(at_input(nn.Sequential(layer, nn.Softmax(-1)))))
    torch.testing.assert_close(network(points).softmax(-1), layer(points).softmax(-1))
    # A probability of 0 has a finite log.
    assert network(1e4 * points).isfinite().all()
