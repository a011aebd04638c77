import pytest
import torch
from torch import nn

from widemargin import Ensemble, Single, at_input
from widemargin.perturb.frozen import frozen
from widemargin.perturb.gradient import slope
from widemargin.perturb.lead import Lead, before_softmax
from widemargin.perturb.losses import margin


def _network(classes: int = 3) -> Single:
    torch.manual_seed(0)
    return Single(at_input(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, classes)).double()))


def _points() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(40, 4, dtype=torch.float64), torch.randint(3, (40,))


@pytest.mark.parametrize("towards_one", [True, False])
def test_its_slope_is_that_of_autograd(towards_one: bool) -> None:
    network, (points, labels) = _network(), _points()
    lead = Lead(labels, (labels + 1) % 3 if towards_one else None)
    with frozen(network):
        for known, ours in zip(slope(network, points, lead), lead.slope(network, points), strict=True):
            torch.testing.assert_close(ours, known, rtol=1e-12, atol=1e-12)


def test_without_rivals_it_is_the_best_other_class() -> None:
    logits, (_, labels) = torch.randn(40, 3), _points()
    torch.testing.assert_close(Lead(labels)(logits), -margin(logits, labels))


def test_a_class_that_is_impossible_has_no_say() -> None:
    logits = torch.tensor([[1.0, -torch.inf, 3.0]])
    assert Lead(torch.tensor([0]))(logits).item() == 2.0


def test_leads_and_slopes_are_the_same_before_the_softmax() -> None:
    network, (points, labels) = _network(), _points()
    with frozen(network):
        plain = before_softmax(network)
        assert plain is not network
        (_, leads, slopes), (_, known, known_slopes) = (Lead(labels).slope(by, points) for by in (plain, network))
    torch.testing.assert_close(leads, known, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(slopes, known_slopes, rtol=1e-9, atol=1e-9)


def test_what_averages_or_has_a_hook_is_asked_itself() -> None:
    ensemble = Ensemble([nn.Linear(4, 3), nn.Linear(4, 3)])
    assert before_softmax(ensemble) is ensemble
    hooked = _network()
    hooked.register_forward_hook(lambda *_: None)
    assert before_softmax(hooked) is hooked


def test_a_lead_of_rows_and_towards_the_label_itself() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0], [3.0, 1.0, 0.0]])
    labels = torch.tensor([0, 0])
    assert Lead.of(labels, labels).rivals is None
    towards = Lead.of(labels, torch.tensor([1, 2]))
    assert towards(logits).tolist() == [1.0, -3.0]
    assert towards.at(torch.tensor([1]))(logits[1:]).tolist() == [-3.0]
    assert Lead(labels).at(torch.tensor([0]))(logits[:1]).tolist() == [2.0]
