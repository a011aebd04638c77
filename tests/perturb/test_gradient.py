import pytest
import torch

from widemargin.perturb.gradient import gradient, slope, slope_or_flat

POINTS = torch.tensor([[1.0, 2.0], [3.0, -1.0]])


def test_each_point_s_gradient_is_that_of_its_own_value() -> None:
    points = POINTS.clone().requires_grad_()
    assert torch.equal(gradient((points**2).sum(1), points), 2 * POINTS)
    values = (points**2).sum(1)
    once, again = gradient(values, points, retain_graph=True), gradient(values, points)
    assert torch.equal(once, again)
    assert points.grad is None


def test_a_slope_has_logits_heights_and_gradients_without_a_graph() -> None:
    logits, heights, uphill = slope(lambda points: 3 * points, POINTS, lambda logits: logits[:, 0])
    assert torch.equal(logits, 3 * POINTS)
    assert torch.equal(heights, 3 * POINTS[:, 0])
    assert uphill.tolist() == [[3.0, 0.0], [3.0, 0.0]]
    assert not any(value.requires_grad for value in (logits, heights, uphill))


def test_what_is_not_a_number_leads_nowhere() -> None:
    _, _, uphill = slope(lambda points: (points - POINTS).norm(dim=1, keepdim=True).sqrt(), POINTS, lambda x: x[:, 0])
    assert torch.equal(uphill, torch.zeros(2, 2))


def test_a_classifier_that_cuts_gradients_off_is_refused_or_flat() -> None:
    with pytest.raises(ValueError, match="must let gradients through to its inputs"):
        slope(lambda points: points.detach(), POINTS, lambda logits: logits[:, 0])
    heights, uphill = slope_or_flat(lambda points: points.detach(), POINTS, lambda logits: logits[:, 0])
    assert heights.tolist() == [1.0, 3.0]
    assert not uphill.any()
