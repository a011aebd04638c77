from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

import widemargin as wm
from widemargin.method import (
    BoundaryWeights,
    SelfScaledBoundaryWeights,
    UniformWeights,
    Weight,
    balanced,
    climbing_entropy,
    with_category_changes,
)
from widemargin.networks.mlp import MLPSpec
from widemargin.perturb.attack import Perturbed
from widemargin.perturb.categories import CategoryChanges, WithCategoryChanges
from widemargin.training.loop import Training, continue_training
from widemargin.uncertainty.wrap import as_network

DISTANCES = torch.tensor([[0.1, 0.2, 0.4, 0.9], [3.0, 1.0, 2.0, 1.0]], dtype=torch.float64)


@pytest.mark.parametrize("weight", [UniformWeights(), BoundaryWeights(0.3), SelfScaledBoundaryWeights()], ids=repr)
def test_each_network_weighs_its_own_samples(weight: Weight) -> None:
    weights = weight(DISTANCES)
    torch.testing.assert_close(weights.sum(1), torch.ones(2).double())
    torch.testing.assert_close(weights[1:], weight(DISTANCES[1:]))


def test_nearer_samples_count_more_by_the_exponential_of_their_way() -> None:
    weights = BoundaryWeights(0.3)(DISTANCES)
    torch.testing.assert_close(weights[0, 0] / weights[0, 2], torch.tensor(1.0).double().exp())


def test_a_scale_of_its_own_does_not_care_about_units() -> None:
    torch.testing.assert_close(SelfScaledBoundaryWeights()(DISTANCES), SelfScaledBoundaryWeights()(1000 * DISTANCES))
    weights = SelfScaledBoundaryWeights(times=2.0, nearest=0.0)(DISTANCES)
    torch.testing.assert_close(weights[0, 0] / weights[0, 2], torch.tensor(1.5).double().exp())


def test_samples_on_the_boundary_do_not_break_the_scale() -> None:
    weights = SelfScaledBoundaryWeights()(torch.tensor([[0.0, 0.0, 1.0]]))
    torch.testing.assert_close(weights, torch.tensor([[0.5, 0.5, 0.0]]))


@pytest.mark.parametrize("weight", [UniformWeights(), BoundaryWeights(0.3), SelfScaledBoundaryWeights()], ids=repr)
def test_parts_of_a_batch_with_their_weights_in_it_make_up_its_loss(weight: Weight) -> None:
    network = wm.Single(wm.at_input(wm.networks.MLP(2, 4, 2).double()))
    inputs, labels, moved = torch.randn(5, 2).double(), torch.tensor([0, 1, 1, 0, 1]), torch.randn(5, 2).double()
    method = wm.Method(wm.standard().perturb, wm.perturb.perturbed_loss, weight)
    way = moved.norm(dim=1)
    weights = method.weights(way)
    parts = [
        method.loss_at(
            network,
            inputs[rows],
            labels[rows],
            Perturbed((inputs + moved)[rows], moved[rows], way[rows]),
            weights[rows],
        )
        for rows in (slice(0, 2), slice(2, 5))
    ]
    whole = method.loss_at(network, inputs, labels, Perturbed(inputs + moved, moved, way))
    torch.testing.assert_close(sum(parts), whole)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BoundaryWeights(0.0), r"^BoundaryWeights.scale must be in \(0, inf\), got 0.0$"),
        (
            lambda: SelfScaledBoundaryWeights(times=-1.0),
            r"^SelfScaledBoundaryWeights.times must be in \(0, inf\), got -1.0$",
        ),
        (
            lambda: SelfScaledBoundaryWeights(nearest=1.5),
            r"^SelfScaledBoundaryWeights.nearest must be in \[0, 1\], got 1.5$",
        ),
    ],
    ids=["scale", "times", "nearest"],
)
def test_bad_scales_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_a_search_as_published_is_in_train_mode_and_climbs_the_entropy() -> None:
    ours = wm.udpr(wm.Linf(0.3), 0.1, 3, weight=1.0)
    theirs = wm.method.as_published(ours)
    assert theirs.criterion == ours.criterion
    assert theirs.perturb == wm.perturb.InTrainMode(
        wm.perturb.Search(
            wm.perturb.perturbed_entropy,
            wm.Linf(0.3),
            wm.perturb.Ascent(wm.perturb.Uniform(1, 3), wm.perturb.Steepest(0.1)),
        )
    )
    for same in (wm.pgd(wm.Linf(0.3), 0.1, 3), wm.trades_cross_entropy(wm.Linf(0.3), 0.1, 3, weight=1.0)):
        assert wm.method.as_published(same).perturb == wm.perturb.InTrainMode(same.perturb)


def test_what_was_not_published_is_refused() -> None:
    with pytest.raises(ValueError, match="TRADES as published is the recipe trades_cross_entropy, got a search of div"):
        wm.method.as_published(wm.trades(wm.Linf(0.3), 0.1, 3, weight=1.0))
    with pytest.raises(ValueError, match=r"must perturb by one Search, got Unperturbed\(\)"):
        wm.method.as_published(wm.standard())


def test_the_entropy_itself_leaves_confident_points_where_they_are() -> None:
    network, points = wm.Single(wm.at_input(wm.networks.MLP(2, 3, 2))), torch.tensor([[1.0, 0.0]])
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(0.0)
        network.head.layers[0].weight[0, 0] = 1.0
        network.head.layers[1].weight[1, 0] = 200.0
    ours = wm.udp(wm.Linf(0.3, wm.OPEN), 0.1, 3)
    for method, moves in ((ours, True), (climbing_entropy(ours), False)):
        delta = method.perturb(network, points, torch.tensor([1]), wm.rng.Rng.seeded(0)).delta
        assert bool((delta != 0).any()) == moves


X, Y = torch.rand(16, 3, generator=torch.Generator().manual_seed(0)), torch.arange(16, dtype=torch.int32) % 3


BALL = wm.Linf(0.2)


def small(*more: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), *more, nn.Linear(6, 3))


@pytest.mark.parametrize(
    "method",
    [
        wm.standard(),
        wm.pgd(BALL, alpha=0.05, steps=3),
        wm.udpr(BALL, alpha=0.05, steps=5, weight=0.5),
        wm.trades(BALL, alpha=0.05, steps=3, weight=2.0),
        wm.udp_near(BALL, alpha=0.05, steps=3, scale=0.1),
        wm.vat(BALL, weight=1.0),
    ],
    ids=["standard", "pgd", "udpr", "trades", "udp_near", "vat"],
)
def test_a_loop_of_ones_own_trains_as_ours_does(method: wm.Method) -> None:
    theirs, ours = small(), small()
    ours.load_state_dict(theirs.state_dict())
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.01, fused=True)
    losses = []
    for update in range(4):
        optimizer.zero_grad()
        loss = method.loss(theirs, X, Y, rng=wm.rng.Rng.seeded(5, purpose=f"update {update}"))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    records = wm.train(ours, (X, Y), method, wm.Plan(wm.Updates(4), wm.Adam(0.01)), seed=5)
    assert losses == [record.loss for record in records]
    assert all(torch.equal(a, b) for a, b in zip(theirs.parameters(), ours.parameters(), strict=True))


def test_chance_follows_torch_and_goes_on_from_call_to_call() -> None:
    model, method = small(), wm.udp(BALL, alpha=0.1, steps=10)
    torch.manual_seed(7)
    first, second = (method.loss(model, X, Y).item() for _ in range(2))
    assert first != second
    torch.manual_seed(7)
    assert [first, second] == [method.loss(model, X, Y).item() for _ in range(2)]
    own = [torch.Generator().manual_seed(1) for _ in range(2)]
    assert method.loss(model, X, Y, rng=own[0]).item() == method.loss(model, X, Y, rng=own[1]).item()
    assert method.loss(model, X, Y, rng=own[0]).item() != method.loss(model, X, Y, rng=torch.Generator()).item()
    # A generator of one's own leaves torch's alone.
    before = torch.get_rng_state()
    method.loss(model, X, Y, rng=own[0])
    assert torch.equal(before, torch.get_rng_state())


def test_a_loss_leaves_modes_buffers_and_gradients_as_they_are() -> None:
    model = small(nn.BatchNorm1d(6), nn.Dropout(0.2))
    model[2].eval()
    names, modes = list(model.state_dict()), [part.training for part in model.modules()]
    statistics = model[2].running_mean.clone()
    loss = wm.udp(BALL, alpha=0.05, steps=3).loss(model, X, Y)
    assert list(model.state_dict()) == names
    assert [part.training for part in model.modules()] == modes
    assert torch.equal(model[2].running_mean, statistics)
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_gradients_reach_what_made_the_inputs() -> None:
    features = X.clone().requires_grad_()
    wm.udpr(wm.Linf(0.2, wm.OPEN), alpha=0.05, steps=3, weight=1.0).loss(small(), features, Y).backward()
    assert features.grad is not None
    assert features.grad.abs().sum() > 0


def test_members_that_are_drawn_are_others_in_every_call() -> None:
    network = wm.MCDropout(wm.at_input(small(nn.Dropout(0.5))), draws=3)
    seen = []

    @dataclass(frozen=True)
    class Looking:
        def __call__(
            self, network: wm.uncertainty.Network, inputs: Tensor, labels: Tensor, rng: wm.rng.Rng
        ) -> Perturbed:
            network.eval()
            seen.append(network.logits(network.encode(inputs)).detach())
            network.train()
            return Perturbed(inputs, torch.zeros_like(inputs), torch.zeros(len(inputs)))

    method, rng = wm.Method(Looking(), wm.perturb.clean_loss), wm.rng.Rng.seeded(0)
    for _ in range(2):
        method.loss(network, X, Y, rng=rng)
    network.eval()
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], network.logits(X))


def test_labels_may_be_left_out_where_none_are_needed() -> None:
    model = small()
    loss = wm.udp_consistency(BALL, alpha=0.05, steps=3, weight=1.0).loss(model, X)
    loss.backward()
    assert model[0].weight.grad.abs().sum() > 0
    with pytest.raises(ValueError, match=r"since it descends perturbed_loss: .* such as wm.udp_consistency"):
        wm.udp(BALL, alpha=0.05, steps=3).loss(model, X)


@pytest.mark.parametrize("method", [wm.standard(), wm.max_entropy(0.1), wm.udp(BALL, 0.05, 3), wm.pgd(BALL, 0.05, 3)])
@pytest.mark.parametrize("wrong", [-100, -1, 3])
def test_labels_are_checked_against_the_classes_whatever_the_method(method: wm.Method, wrong: int) -> None:
    with pytest.raises(ValueError, match=rf"labels must be in 0..2 for 3 classes, got .*{wrong}"):
        method.loss(small(), X, torch.where(torch.arange(len(Y)) == 2, wrong, Y))


def test_methods_that_take_rows_without_labels_refuse_other_labels() -> None:
    method = wm.vat(BALL, weight=1.0)
    method.loss(small(), X, torch.where(torch.arange(len(Y)) == 2, -1, Y))
    with pytest.raises(ValueError, match=r"labels must be in 0..2 for 3 classes, got -100..2"):
        method.loss(small(), X, torch.where(torch.arange(len(Y)) == 2, -100, Y))


def test_inputs_come_to_the_precision_of_the_model() -> None:
    model = small()
    expected = wm.standard().loss(model, X, Y)
    assert wm.standard().loss(model, X.double(), Y) == expected
    assert wm.standard().loss(model, X.numpy().astype("float64"), Y.numpy()) == expected
    assert wm.udp(BALL, 0.05, 3).loss(model.double(), X, Y).dtype == torch.float64


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = small()

    def forward(self, inputs: Tensor) -> Tensor:
        answers: Tensor = self.layers(inputs).detach()
        return answers


def test_a_network_that_cuts_gradients_off_is_told_so() -> None:
    plan = wm.Plan(wm.Updates(1), wm.Adam(0.01))
    for method, where in ((wm.standard(), "weights"), (wm.udp(BALL, 0.05, 3), "inputs")):
        sentence = rf"must let gradients through to its {where}, got answers cut off from them: leave out .detach\(\)"
        with pytest.raises(ValueError, match=sentence):
            method.loss(Detached(), X, Y)
        with pytest.raises(ValueError, match=sentence):
            wm.fit(Detached(), (X, Y), method, plan)
    with torch.no_grad():
        wm.standard().loss(small(), X, Y)
    assert not wm.standard().loss(small().requires_grad_(False), X, Y).requires_grad


def test_a_perturbation_of_ones_own_must_say_that_it_takes_them() -> None:
    class Own:
        def __call__(self, *arguments: object) -> wm.perturb.Perturbed:
            raise AssertionError("it is not asked")

    assert not wm.Method(Own(), wm.perturb.labelled_loss).takes_unlabelled
    assert wm.Method(wm.perturb.Unperturbed(), wm.perturb.labelled_loss).takes_unlabelled
    assert not wm.standard().takes_unlabelled
    consistent = wm.vat(wm.L2(0.3), 1.0)
    assert consistent.takes_unlabelled
    assert isinstance(consistent.perturb, wm.perturb.Search)
    assert wm.Method(wm.perturb.InTrainMode(consistent.perturb), consistent.criterion).takes_unlabelled


def test_class_weights_weigh_the_loss_of_each_sample() -> None:
    network = nn.Linear(2, 3)
    points, labels = torch.randn(4, 2), torch.tensor([0, 1, 1, 2])
    weights = balanced(labels, 3)
    assert weights == pytest.approx((4 / 3, 2 / 3, 4 / 3))
    method = replace(wm.standard(), class_weights=weights)
    each = nn.functional.cross_entropy(network(points), labels, reduction="none")
    wanted = (torch.tensor(weights)[labels] * each).mean()
    torch.testing.assert_close(method.loss(network, points, labels), wanted)
    with pytest.raises(ValueError, match=r"class_weights must be in \(0, inf\)"):
        replace(method, class_weights=(1.0, 0.0))
    with pytest.raises(ValueError, match="a training row of every class"):
        balanced(labels, 4)


def test_rows_without_a_label_keep_their_weight() -> None:
    network, points = nn.Linear(2, 2), torch.randn(3, 2)
    method = wm.vat(wm.L2(0.1, wm.OPEN), weight=1.0)
    labels, rng = torch.full((3,), -1), wm.rng.Rng.seeded(0)
    plain = method.loss(network, points, labels, rng)
    weighted = replace(method, class_weights=(5.0, 7.0)).loss(network, points, labels, wm.rng.Rng.seeded(0))
    torch.testing.assert_close(plain, weighted)


def test_categories_change_before_a_search() -> None:
    box = wm.OPEN.holding((1, 2))
    changes = CategoryChanges(((1, 2),))
    method = wm.pgd(wm.Linf(0.1, box), 0.05, 2)
    assert with_category_changes(method, None) is method
    standard = wm.standard()
    assert with_category_changes(standard, changes) is standard
    changed = with_category_changes(method, changes)
    assert changed.perturb == WithCategoryChanges(method.perturb, changes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="categories are changed before a Search"):
        with_category_changes(changed, changes)


def test_a_training_that_changes_categories_goes_on_to_the_same_bits() -> None:
    points = torch.zeros(20, 3)
    points[:, 0] = torch.linspace(-1, 1, 20)
    points[torch.arange(20), 1 + torch.arange(20) % 2] = 1
    dataset = wm.data.Dataset(points, (points[:, 0] > 0).long())
    method = with_category_changes(wm.udp(wm.L2(0.2, wm.OPEN.holding((1, 2))), 0.1, 3), CategoryChanges(((1, 2),)))
    plan = wm.training.Plan(wm.training.Updates(6), wm.training.Adam(0.05), 8)

    def begun() -> Training:
        build = MLPSpec((3, 6, 2)).build(torch.Generator().manual_seed(0))
        return Training.begin(as_network(build), plan)

    whole, half = begun(), begun()
    for _ in continue_training(whole, dataset, method, plan):
        pass
    for record in continue_training(half, dataset, method, plan):
        if record.update == 3:
            break
    again = begun()
    again.network.load_state_dict(half.network.state_dict())
    again.optimizer.load_state_dict(half.optimizer.state_dict())
    again.update = 3
    for _ in continue_training(again, dataset, method, plan):
        pass
    for one, other in zip(whole.network.parameters(), again.network.parameters(), strict=True):
        assert torch.equal(one, other)
