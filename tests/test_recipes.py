"""What rows without a label do to training, and which methods take them."""

from typing import Any

import pytest
import torch

import widemargin as wm
from widemargin import Method
from widemargin.data.checks import UNLABELLED
from widemargin.perturb.search import Search
from widemargin.rng import Rng

BALL = wm.L2(0.3, wm.OPEN)


CLOUD = wm.data.TwoDistances(count=16).draw()


PARTLY = CLOUD.hide_labels(torch.tensor([0, 2, 5, 11]))


TAKING = [wm.vat(BALL, weight=0.5), wm.udp_consistency(BALL, alpha=0.1, steps=3, weight=0.5)]


PLAN = wm.Plan(wm.Updates(3), wm.Adam(0.01), batch=8)


def network() -> wm.Single:
    return wm.Single(wm.at_input(wm.networks.MLPSpec((2, 8, 2)).build(Rng.seeded(0).generators[0])))


def gradients(method: Method, labels: torch.Tensor) -> list[torch.Tensor]:
    own = network()
    moved = method.perturb(own, CLOUD.points, labels, Rng.seeded(3))
    method.loss_at(own, CLOUD.points, labels, moved).backward()
    return [parameter.grad for parameter in own.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("method", TAKING, ids=["vat", "udp"])
def test_hidden_labels_cannot_matter(method: Method) -> None:
    others = CLOUD.labels.where(PARTLY.labels != UNLABELLED, 1 - CLOUD.labels)
    hidden = wm.Dataset(CLOUD.points, others).hide_labels(torch.tensor([0, 2, 5, 11]))
    weights = []
    for examples in (PARTLY, hidden):
        own = network()
        assert len(list(wm.train(own, examples, method, PLAN))) == 3
        weights.append(torch.cat([parameter.flatten() for parameter in own.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize("method", TAKING, ids=["vat", "udp"])
def test_with_all_labels_it_is_the_clean_loss_and_the_consistency(method: Method) -> None:
    assert isinstance(method.perturb, Search)
    twin = Method(method.perturb, wm.perturb.clean_loss + 0.5 * wm.perturb.consistency)
    for one, other in zip(gradients(method, CLOUD.labels), gradients(twin, CLOUD.labels), strict=True):
        torch.testing.assert_close(one, other)


def test_the_labelled_loss_is_zero_where_there_is_no_label() -> None:
    logits = torch.randn(3, 16, 2, generator=torch.Generator().manual_seed(0))
    pair, whole = (wm.perturb.Pair(labels, lambda: logits, lambda: logits) for labels in (PARTLY.labels, CLOUD.labels))
    known = PARTLY.labels != UNLABELLED
    assert torch.equal(wm.perturb.labelled_loss(pair)[known], wm.perturb.clean_loss(whole)[known])
    assert (wm.perturb.labelled_loss(pair)[~known] == 0).all()


def test_consistency_is_the_divergence_with_the_clean_answer_held_fixed() -> None:
    clean = torch.tensor([[[1.0, -1.0, 0.5]]], requires_grad=True)
    perturbed = torch.tensor([[[0.0, 0.3, 0.2]]], requires_grad=True)
    pair = wm.perturb.Pair(torch.tensor([UNLABELLED]), lambda: clean, lambda: perturbed)
    torch.testing.assert_close(wm.perturb.consistency(pair), wm.perturb.divergence(pair))
    wm.perturb.consistency(pair).sum().backward()
    assert clean.grad is None
    # The gradient of a cross-entropy under soft labels.
    torch.testing.assert_close(perturbed.grad, (perturbed.softmax(-1) - clean.softmax(-1)).detach())


def test_vat_finds_the_leading_direction_of_a_linear_network() -> None:
    """Of two classes, the divergence grows along the difference of their weights alone."""
    linear = torch.nn.Linear(2, 2)
    own = wm.Single(wm.at_input(linear))
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
        linear.bias.zero_()
    delta = wm.vat(BALL, weight=1.0).perturb(own, CLOUD.points, PARTLY.labels, Rng.seeded(0)).delta
    along = delta @ torch.tensor([0.6, -0.8])
    torch.testing.assert_close(along.abs(), torch.full((16,), BALL.radius), rtol=0.02, atol=0)


@pytest.mark.parametrize(
    ("method", "plan"),
    [
        (wm.standard(), PLAN),
        (wm.pgd(BALL, 0.1, 2), PLAN),
        (wm.udp(BALL, 0.1, 2), PLAN),
        (wm.trades(BALL, 0.1, 2, weight=1.0), PLAN),
        (Method(wm.pgd(BALL, 0.1, 2).perturb, wm.perturb.labelled_loss + wm.perturb.consistency), PLAN),
        (Method(wm.friendly(BALL, 0.1, 2, 0).perturb, wm.perturb.labelled_loss), PLAN),
        (TAKING[0], wm.Plan(wm.Updates(3), wm.Adam(0.01), mixed=True)),
    ],
    ids=["standard", "pgd", "udp", "trades", "search by loss", "search until wrong", "mixed"],
)
def test_whoever_needs_labels_refuses_rows_without(method: Method, plan: wm.Plan) -> None:
    with pytest.raises(ValueError, match=r"^labels must be in 0..1 for 2 classes, got -1..1"):
        list(wm.train(network(), PARTLY, method, plan))


def test_an_objective_of_ones_own_refuses_them_unless_it_says_otherwise() -> None:
    def first_logit(pair: wm.perturb.Pair) -> torch.Tensor:
        return pair.perturbed()[0, :, 0]

    assert not (wm.perturb.perturbed_log_entropy + wm.perturb.objective(first_logit)).takes_unlabelled
    assert (
        wm.perturb.perturbed_log_entropy + wm.perturb.objective(first_logit, takes_unlabelled=True)
    ).takes_unlabelled


def test_recipes_take_measures_by_their_plain_names() -> None:
    method = wm.udp(wm.Linf(0.1), 0.1, 3, measure=wm.perturb.measures.mutual_information)
    assert method == wm.udp(wm.Linf(0.1), 0.1, 3, measure=wm.perturb.CLIMBED["mutual information"])
    with pytest.raises(ValueError, match="grows with uncertainty"):
        wm.udp(wm.Linf(0.1), 0.1, 3, measure=wm.perturb.perturbed_gap)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    "make",
    [
        lambda: wm.udp(0.1, 0.02, 3),
        lambda: wm.pgd(0.1, 0.02, 3),
        lambda: wm.fgsm(0.1),
        lambda: wm.vat(0.1, 1.0),
        lambda: wm.udp_near(0.1, 0.02, 3, 0.1),
        lambda: wm.udp_projected(0.1),
        lambda: wm.udp_single_step(0.1),
    ],
)
def test_a_number_is_no_ball(make: Any) -> None:
    with pytest.raises(ValueError, match=r"must have a norm and a radius, got 0.1: give one such as wm.Linf\(0.1\)"):
        make()
