"""The front door, called as a newcomer would: a module of torch, arrays, and now and then a wrong guess."""

import copy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import widemargin as wm
from category_rows import BOX, ONE, changed, is_row, labelled, rows, weighing
from largest_feature import data, linear, linear_margin
from widemargin.measure.autoattack import autoattack
from widemargin.measure.certified import certified_radius
from widemargin.measure.distance import distances
from widemargin.measure.margin import margins as planar_margins
from widemargin.perturb.apgd import APGD
from widemargin.perturb.attack import OnInputs, Perturbed
from widemargin.perturb.balls import Ball, norm_named
from widemargin.perturb.pgd import PGD
from widemargin.training.loop import train
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single

BALL = wm.Linf(0.1, wm.OPEN)
PLAN = wm.Plan(wm.Updates(1), wm.Adam(0.01))


class Styled(nn.Module):
    """Answers like the models of Hugging Face: an object with logits."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, pixel_values: Tensor) -> Any:
        return SimpleNamespace(logits=self.layers(pixel_values), hidden_states=None)


@pytest.mark.parametrize("method", ["apgd", "pgd", "fab"])
def test_an_attack_breaks_whom_it_can_and_leaves_the_others(method: str) -> None:
    model, (x, y) = linear(), data()
    margin = linear_margin(x)
    moved = wm.attack(model, x, y, BALL, method=method)
    broken = model(moved).argmax(1) != y
    assert torch.equal(broken, margin < BALL.radius)
    assert 0 < int(broken.sum()) < len(x)
    assert float((moved - x).abs().max()) <= BALL.radius + 1e-6
    assert torch.equal(moved[~broken], x[~broken])
    assert wm.robust_accuracy(model, (x, y), BALL, method=method) == float((~broken).double().mean())


def test_an_attack_takes_steps_values_and_seeds() -> None:
    model, (x, y) = linear(), data()
    by_name = wm.attack(model, x, y, BALL, steps=7, seed=3)
    assert torch.equal(by_name, wm.attack(model, x, y, BALL, method=APGD(BALL, steps=7), seed=3))
    network = Single(at_input(model))
    assert torch.equal(by_name, autoattack(network, wm.Dataset(x, y.long()), BALL, (APGD(BALL, steps=7),), 3).points)
    assert torch.equal(by_name, wm.attack(model, x, y, BALL, method="APGD", steps=7, seed=3))
    assert not torch.equal(by_name, wm.attack(model, x, y, BALL, steps=7, seed=4))
    search = wm.pgd(BALL, alpha=0.1, steps=4).perturb
    assert wm.robust_accuracy(model, (x, y), BALL, method=search) < 1


@dataclass(frozen=True)
class Away:
    """Moves all features, also those that a box holds fixed, by so much."""

    by: float
    name: str = "away"

    def __call__(self, model: Any, inputs: Tensor, labels: Tensor, rng: Any) -> Perturbed:
        delta = torch.full_like(inputs, self.by)
        delta[:, 0] *= -1
        return Perturbed(inputs + delta, delta, delta.flatten(1).norm(dim=1))


def test_only_what_lies_in_ball_and_box_counts() -> None:
    # Class 0 as long as the first feature is the larger one.
    model, x = linear(2, 2), torch.full((4, 2), 0.5)
    x[:, 0] += 0.3
    data = (x, torch.zeros(4, dtype=torch.int64))

    def robust(ball: Ball, by: float = 0.2) -> float:
        return wm.robust_accuracy(model, data, ball, Away(by))

    assert robust(wm.Linf(0.2)) == 0
    assert robust(wm.Linf(0.19)) == 1
    assert robust(wm.L2(0.2 * 2**0.5)) == 0
    assert robust(wm.L2(0.2)) == 1
    assert robust(wm.L1(0.4)) == 0
    assert robust(wm.L1(0.39)) == 1
    assert robust(wm.Linf(1.0), by=0.6) == 1
    assert robust(wm.Linf(1.0, wm.OPEN), by=0.6) == 0
    assert robust(wm.Linf(0.2, wm.OPEN.holding((1,)))) == 1
    assert torch.equal(wm.attack(model, *data, wm.Linf(0.19), Away(0.2)), x)


def test_with_changed_categories_the_ball_is_around_what_a_row_becomes() -> None:
    network, points = weighing(1, 0, 1, 1, -1, 0, 0), rows(12)
    points[:, 0] = 0
    dataset, ball = labelled(network, points), wm.Linf(0.1, BOX)
    own = PGD(ball, 5)
    by_name = wm.robust_accuracy(network, dataset, ball, "pgd", steps=5, categories=ONE)
    assert wm.robust_accuracy(network, dataset, ball, own, categories=ONE) == by_name == 0


def test_a_targeted_attack_reaches_its_class_or_leaves_the_point() -> None:
    model, (x, _) = linear(), data(rows=30)
    away = (x.amax(1) - x[:, 2]) / 2
    moved = wm.attack(model, x, None, BALL, targeted=2)
    reached = model(moved).argmax(1) == 2
    assert torch.equal(reached, away < BALL.radius)
    assert torch.equal(moved[~reached], x[~reached])
    each = torch.arange(30) % 3
    alone = torch.cat([wm.attack(model, x, None, BALL, targeted=each)[each == k] for k in range(3)])
    torch.testing.assert_close(
        model(alone).argmax(1) == torch.cat([each[each == k] for k in range(3)]),
        torch.cat([((x.amax(1) - x[:, k]) / 2 < BALL.radius)[each == k] for k in range(3)]),
    )
    with pytest.raises(ValueError, match=r"targets must be in 0..2 for 3 classes, got 3..3"):
        wm.attack(model, x, None, BALL, targeted=3)


def test_tensors_come_back_as_they_were_given() -> None:
    model, (x, y) = linear(), data()
    assert wm.attack(model, x.double(), y, BALL).dtype == torch.float64
    assert wm.attack(model, x.numpy().astype("float64"), y.numpy(), BALL).dtype == torch.float32


def test_a_model_of_any_style_is_measured_alike() -> None:
    model, (x, y) = linear(), data()
    same = [model, Styled(model), Single(at_input(model)), wm.Ensemble([model, copy.deepcopy(model)])]
    loader = DataLoader(TensorDataset(x, y), batch_size=5)
    for one in same:
        assert wm.accuracy(one, loader) == 1
        assert wm.robust_accuracy(one, (x.numpy(), y), BALL, "apgd") == wm.robust_accuracy(model, (x, y), BALL, "apgd")
        torch.testing.assert_close(wm.predict(one, x).probabilities, model(x).softmax(1).detach())
        assert wm.calibration(one, (x, y)).accuracy == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda model, x, y: wm.attack(model, x, y, BALL, steps=3),
        lambda model, x, y: wm.attack(model, x, None, BALL, targeted=1, steps=3),
        lambda model, x, y: wm.robust_accuracy(model, (x, y), BALL, "pgd", steps=3),
        lambda model, x, y: wm.predict(model, x),
        lambda model, x, y: wm.accuracy(model, (x, y), device="cpu"),
        lambda model, x, y: wm.margins(model, (x, y)),
        lambda model, x, y: wm.certify(model, (x, y), wm.L2(0.1, wm.OPEN)),
        lambda model, x, y: wm.calibration(model, (x, y)),
        lambda model, x, y: wm.audit(model, (x, y), eps=0.01, points=4, diagnoses=()),
    ],
)
@pytest.mark.parametrize("frozen_in_eval_mode", [False, True])
def test_nothing_of_the_model_changes(call: Any, frozen_in_eval_mode: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 3)).train()
    model[1].train(not frozen_in_eval_mode)
    x, y = data()
    model(x).sum().backward()
    before = copy.deepcopy(model)
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    call(model, x, y)
    assert list(model.state_dict()) == list(before.state_dict())
    assert all(
        torch.equal(a, b) for a, b in zip(model.state_dict().values(), before.state_dict().values(), strict=True)
    )
    assert [part.training for part in model.modules()] == [part.training for part in before.modules()]
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(
        torch.equal(parameter.grad, gradient) for parameter, gradient in zip(model.parameters(), gradients, strict=True)
    )


@pytest.mark.parametrize(("norm", "p"), [("l2", 2.0), (wm.Linf, float("inf"))])
def test_margins_are_exact_in_the_plane(norm: Any, p: float) -> None:
    model, (x, y) = nn.Sequential(linear(2, 2), nn.Identity()), data(2)
    y = (x[:, 1] > x[:, 0]).int()
    measured = wm.margins(model, (x, y), norm=norm)
    assert measured.exact
    torch.testing.assert_close(
        measured.margin, planar_margins(Single(at_input(model)), wm.Dataset(x, y.long()), p=p).margin
    )


@pytest.mark.usefixtures("untyped")
def test_margins_of_more_features_are_the_nearest_places_found() -> None:
    model, (x, y) = linear(), data(rows=5)
    y[0] = (y[0] + 1) % 3
    measured = wm.margins(model, (x, y), norm="linf")
    nearest = distances(Single(at_input(model)), wm.Dataset(x, y.long()), wm.Linf, wm.OPEN)
    torch.testing.assert_close(torch.from_numpy(measured.margin), nearest.distance.double())
    torch.testing.assert_close(
        torch.from_numpy(measured.margin[1:]).float(), linear_margin(x)[1:], rtol=1e-3, atol=1e-5
    )
    assert (measured.exact, measured.errors, measured.margin[0]) == (False, 1, 0)
    assert measured.places is not None
    assert (model(torch.from_numpy(measured.places)).argmax(1) != y).all()
    # A box keeps places inside: no point comes nearer.
    tight = wm.Box(tuple((x.amin(0) - 1e-3).tolist()), tuple((x.amax(0) + 1e-3).tolist()))
    boxed = wm.margins(model, (x, y), norm="linf", box=tight)
    assert (boxed.margin >= measured.margin - 1e-4).all()
    assert (boxed.margin > measured.margin + 1e-4).any()


def test_certificates_are_those_of_the_room() -> None:
    model, (x, y) = linear(), data()
    certificate = wm.certify(model, (x, y), BALL)
    torch.testing.assert_close(
        certificate.radius, certified_radius(Single(at_input(model)), wm.Dataset(x, y.long()), BALL)
    )
    assert certificate.accuracy == float((linear_margin(x) >= BALL.radius).double().mean())


def test_training_takes_the_same_things() -> None:
    x, y = data(rows=20)
    plan, method = wm.Plan(wm.Updates(5), wm.Adam(0.01), batch=7), wm.udp(BALL, alpha=0.05, steps=3)
    ours, theirs, fitted = (copy.deepcopy(linear()) for _ in range(3))
    records = list(wm.train(ours, (x.numpy(), y), method, plan, seed=2))
    assert records == list(train(Single(at_input(theirs)), wm.Dataset(x, y.long()), method, plan, seeds=(2,)))
    assert torch.equal(ours.weight, theirs.weight)
    wm.fit(Styled(fitted), TensorDataset(x, y), method, plan, seed=2, device="cpu")
    torch.testing.assert_close(fitted.weight, ours.weight)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x, y: wm.attack(linear(), x, y, 8 / 255), r"got 0.03\d*: give one such as wm.Linf\(0.03\d*\)"),
        (lambda x, y: wm.attack(linear(), x, y, wm.Linf), r"got the class Linf: give one such as wm.Linf\(8 / 255\)"),
        (lambda x, y: wm.attack(linear(), x, y, "linf"), r"must have a norm and a radius, got 'linf'"),
        (lambda x, y: wm.attack(linear(), x, y, wm.udp), r"must be one such as wm.Linf\(8 / 255\), got a function"),
        (lambda x, y: wm.attack(x, linear(), y, BALL), "got Tensor: the model comes first, then the data"),
        (
            lambda x, y: wm.attack(linear(), x, y, BALL, "cw"),
            "must be one of apgd, .*, got 'cw'",
        ),
        (
            lambda x, y: wm.robust_accuracy(linear(), (x, y), BALL, PGD(wm.Linf(0.6, wm.OPEN), 20)),
            r"must be one in the ball Linf\(radius=0.1, box=OPEN\), got one in Linf\(radius=0.6, box=OPEN\)",
        ),
        (
            lambda x, y: wm.robust_accuracy(linear(), (x, y), BALL, wm.pgd(wm.L2(0.1, wm.OPEN), 0.1, 3).perturb),
            r"got one in L2\(radius=0.1",
        ),
        (
            lambda x, y: wm.robust_accuracy(linear(), (x, y), BALL, wm.udp(BALL, 0.1, 3).perturb),
            "must be measured by a search that climbs the loss, got one that climbs perturbed_log_entropy",
        ),
        (lambda x, y: wm.attack(linear(), x, y, BALL, wm.udp(BALL, 0.1, 3)), "a search that climbs the loss"),
        (lambda x, y: wm.attack(linear(), x, y, BALL, OnInputs(wm.udp(BALL, 0.1, 3).perturb)), "that climbs the loss"),
        (
            lambda x, y: wm.attack(linear(), x, y, BALL, wm.pgd(BALL, 0.1, 3)),
            "got a way of training: give its search, method.perturb, or 'pgd'",
        ),
        (lambda x, y: wm.attack(linear(), x, y, BALL, wm.udp_near(BALL, 0.1, 3, 0.1).perturb), "method must be one of"),
        (
            lambda x, y: wm.attack(linear(), x, y, BALL, APGD(BALL, steps=7), steps=3),
            r"^steps are for methods by name, got steps=3 beside APGD\(.*: give it its own$",
        ),
        (lambda x, y: wm.attack(linear(), x, y, BALL, "square", steps=3), "square has no steps: make it yourself"),
        (
            lambda x, y: wm.robust_accuracy(linear(), (x, y), BALL, steps=3),
            "^autoattack has the fixed steps of the standard, got steps=3: leave them out, or .* method='apgd'$",
        ),
        (lambda x, y: wm.attack(linear(), x, y, BALL, "AutoAttack", steps=3), "^autoattack has the fixed steps"),
        (lambda x, y: wm.attack(linear(), x, y, BALL, targeted=True), "must be the class to reach"),
        (lambda x, y: wm.attack(linear(), 255 * x, y, wm.Linf(0.1)), r"must lie in the box \[0, 1\].*rescale them"),
        (lambda x, y: wm.attack(linear(), x, y + 1, BALL), "in 0..2 for 3 classes, got 1..3: count them from 0, y - 1"),
        (lambda x, y: wm.audit(linear(), (x, y + 1), 0.1), "in 0..2 for 3 classes, got 1..3: count them from 0, y - 1"),
        (lambda x, y: wm.margins(linear(), (x, 2 * (y % 2) - 1)), r"map them to 0 and 1, \(y \+ 1\) // 2"),
        (lambda x, y: wm.attack(linear(), x, 2 * (y % 2) - 1, BALL), r"map them to 0 and 1, \(y \+ 1\) // 2"),
        (lambda x, y: wm.attack(linear(), x, None, BALL), r"got None: give them, or targeted=..., the class to reach"),
        (lambda x, y: wm.attack(linear(), x, y, BALL, targeted=y[:3]), "one for each of 12, got 3"),
        (lambda x, y: wm.attack(linear(), x, y, BALL, "pgd", steps=2.5), "PGD.steps must be a whole number"),
        (lambda x, y: wm.attack(linear(), 255 * x.abs(), y, wm.Linf(0.1)), r"their own box, such as wm.Box\("),
        (
            lambda x, y: wm.predict(linear(), x.byte()),
            r"x.float\(\) / 255, or give x.float\(\) and .* wm.Box\(0, 255\)",
        ),
        (lambda x, y: wm.audit(linear(), (x, y), None), r"eps must be numbers, got None: give eps=\[8 / 255\]"),
        (lambda x, y: wm.audit(linear(), (x, y), 0.1, budget=-1), "budget must be seconds or a time.*, got -1"),
        (lambda x, y: wm.Linf("8/255"), "must be a Python number, got '8/255': give one such as 8 / 255"),
        (lambda x, y: wm.fit(linear(), x, y, wm.standard(), PLAN), r"inputs and labels are a pair, \(x, y\)"),
        (lambda x, y: wm.accuracy(nn.Linear, (x, y)), r"got the class Linear: make one first, Linear\(...\)"),
        (lambda x, y: wm.accuracy(nn.Sequential(linear(), nn.Softmax(1)), (x, y)), "probabilities: remove its softmax"),
        (lambda x, y: wm.predict(linear(5), x), r"must take points of shape \[3\]"),
        (
            lambda x, y: wm.audit(linear(), (x, y), eps="8/255"),
            r"got '8/255': give eps=\[8 / 255\]",
        ),
        (lambda x, y: wm.audit(linear(), (x, y), eps=[BALL]), r"eps must be numbers, got Linf"),
        (lambda x, y: wm.audit(linear(), (x, y), eps=[]), "one or more numbers above 0, got none"),
        (lambda x, y: wm.audit(linear(), (x, y), eps=-0.1), "one or more numbers above 0, got -0.1"),
        (lambda x, y: wm.audit(linear(), (x, y), eps=0.1, norm="l3"), "norm must be one of linf, l2, l1.*, got 'l3'"),
        (lambda x, y: wm.audit(linear(), (x, y), BALL), r"eps must be numbers, got Linf.*give eps=\[8 / 255\]"),
        (
            lambda x, y: wm.audit(linear(), (x, y), 0.1, points=2.5),
            "points must be a whole number of at least 1, got 2.5",
        ),
        (lambda x, y: wm.audit(linear(), (x, y), 0.1, points=0), "points must be a whole number of at least 1, got 0"),
        (lambda x, y: wm.audit(linear(), (x, y), 0.1, budget="soon"), "seconds or a time such as .*, got 'soon'"),
        (
            lambda x, y: wm.audit(linear(), (x, y), 0.1, box=(0, 1)),
            r"box must be a Box, got \(0, 1\): give wm.Box\(0, 1\)",
        ),
        (
            lambda x, y: wm.margins(linear(), (x, y), box=(0, 1)),
            r"box must be a Box, got \(0, 1\): give wm.Box\(0, 1\)",
        ),
        (lambda x, y: wm.audit(wm.WideMarginClassifier(), (x, y), 0.1), r"model.audit\(x, y, eps=...\)"),
        (lambda x, y: wm.accuracy(linear(), x, y), r"got a Tensor: inputs and labels are a pair, \(x, y\)"),
        (lambda x, y: wm.accuracy(linear(), (x, y), device="meta"), "this computer has, got meta: take cpu"),
        (lambda x, y: wm.fit(linear(), (x, y), wm.standard(), PLAN, device="meta"), "this computer has, got meta"),
        (lambda x, y: list(wm.train(linear(), (x, y), wm.standard(), PLAN, device="meta")), "computer has, got meta"),
        (lambda x, y: wm.accuracy(linear(2, 2), (x[:, :2], 2 * (y % 2) - 1)), r"map them to 0 and 1, \(y \+ 1\) // 2"),
        (
            lambda x, y: wm.fit(linear(2, 2), (x[:, :2], 2 * (y % 2) - 1), wm.standard(), PLAN),
            r"in 0..1 for 2 classes, got -1..1: .* map them to 0 and 1, \(y \+ 1\) // 2",
        ),
        (lambda x, y: wm.accuracy(nn.Linear(3, 1), (x, y)), r"torch.cat\(\[torch.zeros_like\(z\), z\], 1\)"),
        (lambda x, y: wm.predict(linear(), x[0]), r"got \[3\]: add a batch axis, x\[None\]"),
        (lambda x, y: wm.predict(nn.Sequential(nn.Flatten(), linear(16)), torch.rand(1, 4, 4)[:, :3]), r"x\[None\]"),
        (
            lambda x, y: wm.fit(linear(), (x, y), wm.standard(), wm.Plan(wm.Epochs(1), wm.Adam(0.1), batch=50)),
            "^batch must be in 1..12, the number of examples, got 50",
        ),
        (lambda x, y: wm.fit(linear(), (x, y), wm.standard(), 5), r"must be a Plan, got 5: give wm.Plan\(wm.Epochs"),
        (lambda x, y: wm.train(linear(), (x, y), wm.standard(), 5), r"must be a Plan, got 5: give wm.Plan\(wm.Epochs"),
        (
            lambda x, y: wm.fit(linear(), (x, y), wm.standard(), PLAN, validation=(x, y)),
            r"must be a Validation, .*got a tuple: .*wm.data.Splits\(train, validation, test\)",
        ),
        (lambda x, y: wm.margins(linear(), (y, x)), r"got them the other way round: give \(x, y\)"),
        (lambda x, y: wm.train(linear(), (x, y), wm.udp, None), r"must be a Method, got udp: call a recipe"),
        (lambda x, y: wm.fit(linear(), (x, y), wm.udp, None), r"must be a Method, got udp: call a recipe"),
        (lambda x, y: wm.fit(nn.Linear, (x, y), wm.standard(), None), r"got the class Linear: make one first"),
    ],
)
def test_wrong_guesses_get_the_right_call(call: Any, sentence: str) -> None:
    x, y = data()
    with pytest.raises(ValueError, match=sentence):
        call(x, y)


@pytest.mark.parametrize("norm", ["linf", "Linf", "l_inf", "L-inf", "inf", np.inf, float("inf"), wm.Linf])
def test_a_norm_may_be_written_as_people_do(norm: Any) -> None:
    x, y = torch.tensor([[0.2, 0.7, 0.1], [0.9, 0.3, 0.0]]), torch.tensor([1, 0])
    assert norm_named(norm) is wm.Linf
    assert wm.separation((x, y), norm).norm == "linf"
    assert wm.margins(linear(), (x, y), norm, wm.OPEN).margin.tolist() == pytest.approx([0.25, 0.3], abs=1e-3)


def test_other_norms_have_their_numbers_too() -> None:
    assert [norm_named(norm) for norm in (2, 2.0, "2", "L2", "l_2", 1, "l1")] == [wm.L2] * 5 + [wm.L1] * 2
    for wrong in (3, "l3", None, "", -1):
        with pytest.raises(ValueError, match=r"norm must be one of linf, l2, l1.*, got"):
            norm_named(wrong)


def test_separation_of_arrays() -> None:
    x, y = np.array([[0.0], [3.0], [1.0]]), np.array([0, 0, 1])
    result = wm.separation((x, y))
    assert result.distances.tolist() == [1.0, 2.0, 1.0]
    assert result.radius() == 0.5


def test_categories_may_change_where_that_is_said() -> None:
    # Only the third category of the first column makes class 0, and only the first number moves a row there.
    network, points = weighing(1, 0, 1, 1, -1, 0, 0), rows(12)
    points[:, 0] = 0
    dataset = labelled(network, points)
    ball = wm.Linf(0.1, BOX)
    assert wm.robust_accuracy(network, dataset, ball, "apgd") == 1
    assert wm.robust_accuracy(network, dataset, ball, "apgd", categories=ONE) == 0
    moved = wm.attack(network, dataset.points, dataset.labels, ball, "pgd", categories=ONE)
    assert is_row(moved)
    assert changed(points, moved).tolist() == [1] * 12
    margins = wm.margins(network, dataset, "linf", BOX, categories=ONE)
    assert margins.margin.tolist() == [0] * 12
    assert margins.changed is not None
    assert margins.changed.tolist() == [1] * 12
    assert wm.margins(network, dataset, "linf", BOX).changed is None
    assert wm.certify(network, dataset, ball).accuracy == 1
    assert wm.certify(network, dataset, ball, categories=ONE).accuracy == 0
    target = wm.attack(network, dataset.points, None, ball, "pgd", targeted=0, categories=ONE)
    with torch.no_grad():
        assert network(target).argmax(1).tolist() == [0] * 12
    with pytest.raises(ValueError, match="the box must hold the features of categories fixed, got 2 free"):
        wm.robust_accuracy(network, dataset, wm.Linf(0.1, wm.OPEN), "apgd", categories=ONE)
