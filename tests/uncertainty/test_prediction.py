import torch
from torch import nn

from widemargin.uncertainty.ensemble import Ensemble
from widemargin.uncertainty.prediction import Prediction, predicted

LOGITS = torch.tensor([[[2.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [0.0, 0.0]]])


def test_two_members_that_disagree_and_two_that_do_not_know() -> None:
    p = Prediction(LOGITS)
    assert (len(p), p.members) == (2, 2)
    torch.testing.assert_close(p.probabilities, torch.full((2, 2), 0.5))
    torch.testing.assert_close(p.confidence, torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(p.variation_ratio, torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(p.entropy, torch.tensor(2.0).log().expand(2))
    torch.testing.assert_close(p.entropy, p.expected_entropy + p.mutual_information)
    assert p.mutual_information[0] > 0.1
    assert p.mutual_information[1] < 1e-6


def test_one_member_has_nobody_to_disagree_with() -> None:
    p = Prediction(LOGITS[:1])
    assert p.mutual_information.tolist() == [0.0, 0.0]
    torch.testing.assert_close(p.entropy, p.expected_entropy)
    assert p.classes.tolist()[0] == 0


def test_batches_make_no_difference_and_modes_stay() -> None:
    network, x = Ensemble([nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)), nn.Linear(3, 4)]), torch.rand(7, 3)
    whole, parts = predicted(network, x, 100), predicted(network, x, 2)
    torch.testing.assert_close(whole.logits, parts.logits)
    assert network.members[0][1].training
    assert not whole.logits.requires_grad
