import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from cases import ONE_MLP, WITH_STATE
from lines import line
from widemargin import (
    L1,
    L2,
    OPEN,
    Ensemble,
    Linf,
    Method,
    Single,
    at_input,
    pgd,
    trades,
    trades_cross_entropy,
    trades_random_start,
    udp,
)
from widemargin.networks.mlp import MLP
from widemargin.perturb.ascent import Ascent, Fixed, Gaussian, Misclassified, Steepest, Uniform
from widemargin.perturb.balls import Ball
from widemargin.perturb.objectives import divergence, perturbed_loss
from widemargin.perturb.search import InTrainMode, Search, Unperturbed
from widemargin.rng import Rng
from widemargin.uncertainty.cuts import after
from widemargin.uncertainty.replicas import Replicas

SLOPE = [1.0, -2.0, 0.5]
LENGTH = 5.25**0.5


@pytest.mark.parametrize(
    ("ball", "far_end"),
    [
        (Linf(0.3, OPEN), [0.3, -0.3, 0.3]),
        (L2(0.3, OPEN), [0.3 * w / LENGTH for w in SLOPE]),
        (L1(0.3, OPEN), [0.0, -0.3, 0.0]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("label", [0, 1])
def test_climbing_the_loss_reaches_the_far_end_of_the_ball(ball: Ball, far_end: list[float], label: int) -> None:
    search = Search(perturbed_loss, ball, Ascent(Fixed(5), Steepest(0.1)))
    delta = search(line(SLOPE), torch.zeros(2, 3).double(), torch.tensor([label, label]), Rng.seeded(0)).delta
    away = 1 if label == 0 else -1
    torch.testing.assert_close(delta, away * torch.tensor([far_end, far_end]).double())


class Counting(nn.Module):
    """Notes how many rows it is asked about, every time."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.rows: list[int] = []

    def forward(self, points: Tensor) -> Tensor:
        self.rows.append(len(points))
        return self.inner(points)


def test_who_has_finished_costs_nothing() -> None:
    counting = Counting(MLP(4, 3))
    points, labels = torch.rand(50, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(50, dtype=torch.long)
    udp(L2(1.0), 0.1, 6).perturb(Single(at_input(counting)), points, labels, Rng.seeded(5))
    drawn = Uniform(1, 6).draw(50, Rng.seeded(5))
    assert counting.rows == [int((drawn > taken).sum()) for taken in range(6)]
    assert sum(counting.rows) == drawn.sum()


def test_the_loop_ends_when_everybody_has_finished() -> None:
    counting = Counting(line([1.0]).head)
    search = Search(perturbed_loss, Linf(9.0, OPEN), Ascent(Fixed(100), Steepest(1.0), until=Misclassified()))
    search(Single(at_input(counting)), torch.tensor([[-0.5], [-2.5]]).double(), torch.tensor([0, 0]), Rng.seeded(0))
    # One and three steps until they have crossed, and for each one look that finds it so.
    assert counting.rows == [2, 2, 1, 1]


def test_the_clean_answer_is_computed_once() -> None:
    counting = Counting(MLP(4, 3))
    points, labels = torch.rand(8, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(8, dtype=torch.long)
    trades(L2(1.0), 0.1, 5, weight=1.0).perturb(Single(at_input(counting)), points, labels, Rng.seeded(0))
    assert counting.rows == [8] * 6


@pytest.mark.parametrize("recipe", [trades, trades_cross_entropy])
def test_trades_searches_towards_the_boundary_and_not_away_from_it(recipe: Callable[..., Method]) -> None:
    points = torch.linspace(-1.5, 1.5, 40).double()[:, None]
    labels, ball, network = (points[:, 0] > 0).long(), Linf(2.0, OPEN), line([1.0])

    def crossed(method: Method) -> Tensor:
        moved = points + method.perturb(network, points, labels, Rng.seeded(0)).delta
        return (moved * points < 0)[:, 0]

    assert bool(crossed(recipe(ball, 0.1, 20, weight=1.0)).all())
    # A divergence rises on both sides of the clean point: about half the random starts lead away.
    assert 0.2 < crossed(trades_random_start(ball, 0.1, 20, weight=1.0)).double().mean() < 0.8


class Saved:
    """A tensor that a graph keeps for its backward pass: alive as long as the graph is."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def most_saved_at_once(steps: int) -> int:
    alive: weakref.WeakSet[Saved] = weakref.WeakSet()
    most = 0

    def pack(tensor: Tensor) -> Saved:
        nonlocal most
        saved = Saved(tensor)
        alive.add(saved)
        most = max(most, len(alive))
        return saved

    method = trades(L2(1.0), 0.1, steps, weight=1.0)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        method.perturb(ONE_MLP.network(), ONE_MLP.points(), ONE_MLP.labels(), Rng.seeded(0))
    assert len(alive) == 0
    return most


def test_memory_does_not_grow_with_steps() -> None:
    assert most_saved_at_once(5) == most_saved_at_once(50) > 0


@pytest.mark.parametrize("in_train_mode", [False, True])
def test_only_a_search_in_train_mode_feeds_batch_norm(in_train_mode: bool) -> None:
    network, search = WITH_STATE.network().train(), pgd(L2(0.5), 0.1, 3).perturb
    before = network.head[1].running_mean.clone()
    perturb = InTrainMode(search) if in_train_mode else search
    moved = perturb(network, WITH_STATE.points(), WITH_STATE.labels(), Rng.seeded(0))
    assert torch.equal(network.head[1].running_mean, before) != in_train_mode
    assert torch.equal(moved.distance, L2(0.5).norm(moved.delta))
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert network.training


def test_a_search_that_fails_leaves_the_network_as_it_was() -> None:
    network = WITH_STATE.network().train()
    with pytest.raises(ValueError, match="labels"):
        pgd(L2(0.5), 0.1, 3).perturb(network, WITH_STATE.points(), WITH_STATE.labels() + 9, Rng.seeded(0))
    assert all(module.training for module in network.modules())
    assert all(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize("guard", [torch.no_grad, torch.enable_grad])
def test_searches_the_same_whatever_the_gradient_mode(guard: type) -> None:
    arguments = ONE_MLP.network(), ONE_MLP.points(), ONE_MLP.labels()
    search = udp(L2(0.5), 0.1, 4).perturb
    with guard():
        delta = search(*arguments, Rng.seeded(0)).delta
    assert not delta.requires_grad
    assert torch.equal(delta, search(*arguments, Rng.seeded(0)).delta)


def test_inputs_are_left_alone() -> None:
    points = ONE_MLP.points().requires_grad_()
    before = points.detach().clone()
    delta = udp(L2(0.5), 0.1, 4).perturb(ONE_MLP.network(), points, ONE_MLP.labels(), Rng.seeded(0)).delta
    assert torch.equal(points, before)
    assert points.grad is None
    assert not delta.requires_grad


def test_networks_abreast_are_searched_as_each_alone() -> None:
    torch_rng = torch.Generator().manual_seed(0)
    singles = [MLP(3, 6, 2).double() for _ in range(3)]
    for single in singles:
        for parameter in single.parameters():
            nn.init.normal_(parameter, generator=torch_rng)
    points = torch.rand(12, 3, generator=torch_rng, dtype=torch.float64)
    labels = torch.arange(12) % 2
    search = udp(L2(0.5), 0.1, 5).perturb
    together = search(Replicas(singles), points, labels, Rng.seeded(0, 1, 2)).delta
    for seed, single in enumerate(singles):
        rows = slice(4 * seed, 4 * seed + 4)
        alone = search(Single(at_input(single)), points[rows], labels[rows], Rng.seeded(seed)).delta
        torch.testing.assert_close(together[rows], alone, rtol=0, atol=1e-12)


def test_nothing_moves_unperturbed() -> None:
    network = Single(after(nn.Sequential(nn.Linear(3, 7), nn.Linear(7, 2)), 1))
    moved = Unperturbed()(network, torch.ones(4, 3), torch.zeros(4, dtype=torch.long), Rng.seeded(0))
    assert torch.equal(moved.delta, torch.zeros(4, 7))
    assert torch.equal(moved.distance, torch.zeros(4))


GOOD_POINTS, GOOD_LABELS = torch.full((4, 3), 0.5), torch.tensor([0, 1, 0, 1])


def broken(value: float) -> Tensor:
    points = GOOD_POINTS.clone()
    points[2, 1] = value
    return points


@pytest.mark.parametrize(
    ("points", "labels", "message"),
    [
        (GOOD_POINTS, torch.tensor([0, 1, 0, 2]), r"labels must be in 0..1 for 2 classes, got 0..2"),
        (GOOD_POINTS, torch.tensor([0, 1, 0, -1]), r"labels must be in 0..1 for 2 classes, got -1..1"),
        (
            GOOD_POINTS,
            GOOD_LABELS.double(),
            r"labels must be whole numbers of type torch.int64, got torch.float64",
        ),
        (GOOD_POINTS, GOOD_LABELS == 1, r"labels must be whole numbers of type torch.int64, got torch.bool"),
        (GOOD_POINTS, GOOD_LABELS[:3], r"labels must have shape \[4\], one for every point, got \[3\]"),
        (GOOD_POINTS, GOOD_LABELS[:, None], r"labels must have shape \[4\], one for every point, got \[4, 1\]"),
        (broken(torch.nan), GOOD_LABELS, r"points must be finite, got NaN or infinity in row 2: drop or fill"),
        (broken(torch.inf), GOOD_LABELS, r"points must be finite, got NaN or infinity in row 2: drop or fill"),
        (
            broken(1.2),
            GOOD_LABELS,
            r"points must lie in the box \[0, 1\], got values from 0.5 to 1.2: rescale them, or",
        ),
        (broken(-0.2), GOOD_LABELS, r"points must lie in the box \[0, 1\], got values from -0.2 to 0.5: rescale them"),
        (GOOD_POINTS.long(), GOOD_LABELS, r"points must be floating-point numbers, got torch.int64: call points.float"),
        (GOOD_POINTS[0], GOOD_LABELS, r"points must have shape \[batch, features...\] and at least one row, got \[3\]"),
        (GOOD_POINTS[:0], GOOD_LABELS[:0], r"points must have shape .* at least one row, got \[0, 3\]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_points_and_labels_are_refused_in_one_sentence(points: Tensor, labels: Tensor, message: str) -> None:
    search = Search(perturbed_loss, Linf(0.1), Ascent(Fixed(2), Steepest(0.1)))
    with pytest.raises(ValueError, match=f"^{message}"):
        search(Single(at_input(nn.Linear(3, 2))), points, labels, Rng.seeded(0))


def test_a_network_with_one_logit_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"^the network must return logits of shape \[4, classes\] with at least 2 classes, got \[4, 1\]",
    ):
        pgd(Linf(0.1), 0.1, 1).perturb(Single(at_input(nn.Linear(3, 1))), GOOD_POINTS, GOOD_LABELS, Rng.seeded(0))


def test_nothing_but_training_feeds_batch_norm_in_a_latent_space() -> None:
    network = Single(after(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)), 1)).train()
    for perturb in (Unperturbed(), udp(L2(0.5, OPEN), 0.1, 2).perturb):
        perturb(network, torch.rand(4, 3), torch.tensor([0, 1, 0, 1]), Rng.seeded(0))
    assert network.encoder[0].num_batches_tracked == 0


def test_one_member_with_a_softmax_is_found_among_others() -> None:
    members = [nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 2), nn.Softmax(-1))]
    with pytest.raises(ValueError, match="got rows that look like probabilities"):
        pgd(Linf(0.1), 0.1, 1).perturb(Ensemble(members), GOOD_POINTS, GOOD_LABELS, Rng.seeded(0))


def test_the_clean_points_may_be_elsewhere() -> None:
    network, clean = line([1.0, 0.0]), torch.tensor([[-2.0, 0.0]], dtype=torch.float64)
    # From a place on the other side it goes on, away from the clean answer, and not back.
    start, label = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    search = Search(divergence, Linf(0.5, OPEN), Ascent(Fixed(3), Steepest(0.2), Gaussian()))
    moved = search(network, start, label, Rng.seeded(0), clean_at=clean)
    assert float(moved.points[0, 0]) == pytest.approx(1.5)
    assert float(moved.distance) == pytest.approx(0.5)
