from itertools import islice

import pytest
import torch
from torch import Tensor, nn

from widemargin import (
    L2,
    OPEN,
    Adam,
    Cosine,
    Dataset,
    Linf,
    Method,
    Plan,
    Single,
    Updates,
    at_input,
    friendly,
    pgd,
    r_fgsm,
    trades,
    udp,
    udp_near,
    udp_projected,
    udpr,
)
from widemargin.data.toy import LMS5
from widemargin.networks.mlp import MLPSpec
from widemargin.recipes import standard
from widemargin.rng import Rng
from widemargin.training.loop import Record, Training, continue_training, train
from widemargin.uncertainty.replicas import Replicas

BALL = Linf(0.3, OPEN)
METHODS = [
    pgd(BALL, 0.1, 3),
    r_fgsm(L2(0.3, OPEN), 0.2),
    friendly(BALL, 0.1, 4, patience=1),
    trades(BALL, 0.1, 3, weight=2.0),
    udp_near(L2(0.3, OPEN), 0.1, 4, scale=0.1),
    udp_projected(L2(0.3, OPEN), 3),
]
CLOUD = LMS5(count=24).draw()
POINTS, LABELS = CLOUD.points.double(), CLOUD.labels
DOUBLE = Dataset(POINTS, LABELS)
PLAN = Plan(Updates(20), Adam(0.01, Cosine()))


def fresh(seed: int) -> nn.Module:
    return MLPSpec((2, 8, 2)).build(Rng.seeded(seed, purpose="weights").generators[0]).double()


def alone(seed: int, method: Method, plan: Plan = PLAN) -> tuple[Single, list[Record]]:
    network = Single(at_input(fresh(seed)))
    return network, list(train(network, DOUBLE, method, plan, (seed,)))


@pytest.mark.parametrize(
    ("method", "batch"), [(method, None) for method in METHODS] + [(udpr(BALL, 0.1, 4, weight=0.5), 7)], ids=repr
)
def test_seeds_trained_abreast_become_what_each_becomes_alone(method: Method, batch: int | None) -> None:
    plan = Plan(Updates(20), Adam(0.01, Cosine()), batch)
    together = Replicas([fresh(seed) for seed in range(3)])
    records = list(train(together, DOUBLE.repeat(3), method, plan, (0, 1, 2)))
    losses = []
    for seed, trained in enumerate(together.split()):
        single, own = alone(seed, method, plan)
        losses.append([record.loss for record in own])
        for a, b in zip(trained.parameters(), single.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
    assert [r.loss for r in records] == pytest.approx(torch.tensor(losses).mean(0).tolist(), abs=1e-6)


def test_the_seed_decides_the_network() -> None:
    (first, _), (again, _), (other, _) = (alone(seed, udp(BALL, 0.1, 3)) for seed in (0, 0, 1))
    for a, b, c in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_records_count_the_updates_and_the_loss_falls() -> None:
    _, records = alone(0, standard(), Plan(Updates(150), Adam(0.02)))
    assert [record.update for record in records] == list(range(1, 151))
    assert records[-1].loss < 0.3 * records[0].loss


def test_the_first_record_is_the_loss_before_any_update() -> None:
    network, records = Single(at_input(fresh(0))), alone(0, standard())[1]
    assert records[0].loss == pytest.approx(nn.functional.cross_entropy(network(POINTS), LABELS).item())


def test_nothing_happens_until_records_are_asked_for() -> None:
    network = Single(at_input(fresh(0)))
    before = [parameter.detach().clone() for parameter in network.parameters()]
    records = train(network, DOUBLE, standard(), PLAN)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), before, strict=True))
    next(records)
    assert not any(torch.equal(a, b) for a, b in zip(network.parameters(), before, strict=True))


class Watching(nn.Module):
    """Notes the mode it is called in, and whether gradients are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2).double()
        self.seen: list[tuple[bool, bool]] = []

    def forward(self, points: Tensor) -> Tensor:
        self.seen.append((self.training, self.layer.weight.requires_grad))
        return self.layer(points)


def test_the_search_sees_eval_mode_and_the_descent_sees_train_mode() -> None:
    watching = Watching()
    network = Single(at_input(watching)).eval()
    list(train(network, DOUBLE, pgd(BALL, 0.1, 2), Plan(Updates(1), Adam(0.01))))
    tried, *searched, descended = watching.seen
    assert tried == (False, True)
    assert searched == [(False, False)] * 2
    assert descended == (True, True)
    assert network.training


@pytest.mark.parametrize(
    ("head", "points", "labels", "message"),
    [
        (nn.Linear(2, 2), POINTS * torch.nan, LABELS, "points must be finite, got NaN or infinity in row 0"),
        (nn.Linear(2, 2), POINTS, LABELS.double(), "labels must be whole numbers"),
        (nn.Linear(2, 2), POINTS, LABELS + 1, "labels must be in 0..1 for 2 classes, got 1..2"),
        (nn.Linear(2, 2), POINTS, LABELS[:-1], r"labels must have shape \[24\], one for every point, got \[23\]"),
        (nn.Linear(2, 1), POINTS, LABELS, r"the network must return logits of shape \[24, classes\]"),
        (nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1)), POINTS, LABELS, "the network must return logits, got rows"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_trained_is_refused(head: nn.Module, points: Tensor, labels: Tensor, message: str) -> None:
    network = Single(at_input(head)).double()
    with pytest.raises(ValueError, match=f"^{message}"):
        next(train(network, Dataset(points, labels), standard(), PLAN))


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^batch must be in 1..24, the number of examples, got 25$"):
        alone(0, standard(), Plan(Updates(1), Adam(0.01), batch=25))


@pytest.mark.parametrize("batch", [None, 7])
def test_a_training_can_stop_anywhere_and_carry_on(batch: int | None) -> None:
    plan, method = Plan(Updates(12), Adam(0.01, Cosine()), batch), udp(BALL, 0.1, 3)
    undisturbed, records = alone(3, method, plan)
    for stop in (1, 5, 11):
        training = Training.begin(Single(at_input(fresh(3))), plan)
        first = list(islice(continue_training(training, DOUBLE, method, plan, (3,)), stop))
        rest = list(continue_training(training, DOUBLE, method, plan, (3,)))
        assert first + rest == records
        for a, b in zip(training.network.parameters(), undisturbed.parameters(), strict=True):
            assert torch.equal(a, b)


def test_dropout_follows_the_seed_and_leaves_the_global_generator_alone() -> None:
    def trained(seed: int) -> list[Tensor]:
        network = Single(at_input(nn.Sequential(fresh(0), nn.Dropout(0.5), fresh(1))))
        torch.rand(seed + 3)
        before = torch.get_rng_state()
        list(train(network, DOUBLE, standard(), PLAN, (seed,)))
        assert torch.equal(torch.get_rng_state(), before)
        return [parameter.detach() for parameter in network.parameters()]

    first, again, other = trained(0), trained(0), trained(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_every_network_abreast_needs_a_seed() -> None:
    with pytest.raises(ValueError, match=r"^2 networks need a seed each, got 1$"):
        next(train(Replicas([fresh(0), fresh(1)]), DOUBLE.repeat(2), standard(), PLAN, (0,)))


def test_evaluating_between_records_does_not_freeze_the_network() -> None:
    watching = Watching()
    network = Single(at_input(watching))
    for _ in train(network, DOUBLE, standard(), Plan(Updates(3), Adam(0.01))):
        network.eval()
    assert [training for training, _ in watching.seen[1:]] == [True, True, True]


def test_a_network_that_cannot_take_the_points_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"^the network must take points of shape \[2\] and type torch.float64, got"):
        next(train(Single(at_input(nn.Linear(3, 2))).double(), DOUBLE, standard(), PLAN))


@pytest.mark.parametrize("mixed", [False, True])
def test_a_sample_of_weight_two_counts_as_two_samples(mixed: bool) -> None:
    rows = torch.arange(len(DOUBLE))
    counts = 1 + rows % 3
    plan = Plan(Updates(4), Adam(0.01), mixed=mixed)

    def trained(examples: Dataset, weights: Tensor | None) -> list[Tensor]:
        training = Training.begin(Single(at_input(fresh(0))), plan)
        list(continue_training(training, examples, pgd(BALL, 0.1, 3), plan, sample_weights=weights))
        return list(training.network.parameters())

    repeated = trained(DOUBLE.take(rows.repeat_interleave(counts)), None)
    for a, b in zip(trained(DOUBLE, 5.0 * counts.double()), repeated, strict=True):
        torch.testing.assert_close(a, b)
    assert not torch.allclose(trained(DOUBLE, None)[0], repeated[0])


@pytest.mark.parametrize("weights", [[1.0], [-1.0, 1.0], [0.0, 0.0], [float("nan"), 1.0]])
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    training = Training.begin(Single(at_input(fresh(0))), PLAN)
    with pytest.raises(ValueError, match="sample weights must be 2 numbers of at least 0, not all 0"):
        next(
            continue_training(
                training, DOUBLE.take(torch.tensor([0, 1])), standard(), PLAN, sample_weights=torch.tensor(weights)
            )
        )
