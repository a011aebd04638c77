import torch
from torch import nn

from widemargin.measure.targeted import Towards
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single


def test_class_1_leads_where_the_target_leads_all_others_and_by_as_much() -> None:
    network, points = Single(at_input(nn.Linear(3, 4))).eval(), torch.randn(50, 3)
    logits = network(points)
    for target in range(4):
        view = Towards(network, target)(points)
        rivals = logits.clone()
        rivals[:, target] = -torch.inf
        torch.testing.assert_close(view[:, 1] - view[:, 0], logits[:, target] - rivals.amax(1))
        assert torch.equal(view.argmax(1) == 1, logits.argmax(1) == target)
