"""What must hold of every norm, attack, estimator and method, for tests of new ones: see docs/add-a-norm.md.

Each function raises an AssertionError that says what does not hold.  The library's parts are held to the same.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from widemargin.data.dataset import Dataset
from widemargin.method import Method
from widemargin.networks.mlp import MLP
from widemargin.perturb.attack import Attack, Perturbation, Perturbed
from widemargin.perturb.balls import OPEN, UNIT, Ball, Norm
from widemargin.perturb.frozen import frozen
from widemargin.recipes import standard
from widemargin.rng import AnyRng, Rng, RowRng
from widemargin.shapes import Encoded, Labels, PerSample, Points
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.estimators import AtInput, Estimator
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.single import Single

_ROWS = 12
_ROUNDING = 1e-5
"""A norm may compute in float32."""


def assert_ball(norm: Norm, features: int = 6) -> None:
    """A norm: its steepest step, its dual, its projection, its samples and its step to a plane agree.

    `features` is how many a point of it has.
    """
    for box in (OPEN, UNIT):
        for radius in (0.05, 0.7):
            _assert_ball(norm(radius, box), features)
    _require(norm(0.5) == norm(0.5), "equal radii and boxes must make equal balls: it must be a frozen dataclass")


def _assert_ball(ball: Ball, features: int) -> None:
    center = _points(_ROWS, features)
    gradient, delta = (Rng.seeded(seed).normal(center) for seed in (1, 2))
    length = ball.norm(delta)
    _require(length.shape == (_ROWS,) and bool((length > 0).all()), "norm must give every row one number above 0")
    _close(ball.norm(3 * delta), 3 * length, "norm must be three times as large of a step three times as long")
    step = ball.steepest(gradient)
    _close(ball.norm(step), torch.ones_like(length), "steepest must be a step of length 1")
    _close(_dot(step, gradient), ball.dual_norm(gradient), "the climb of the steepest step must be dual_norm")
    others = delta / length[:, None]
    _require(
        bool((_dot(others, gradient) <= ball.dual_norm(gradient) + _ROUNDING).all()),
        "no step of length 1 may climb more than dual_norm",
    )
    _require(not ball.steepest(torch.zeros_like(center)).any(), "without a gradient steepest must be no step")
    projected = ball.project(delta, center)
    _assert_inside(ball, center, projected, "project")
    _close(ball.project(projected, center), projected, "project must leave alone what is inside")
    radii = torch.linspace(0.01, 2, _ROWS, dtype=center.dtype)
    alone = [type(ball)(float(radii[i]), ball.box).project(delta[i : i + 1], center[i : i + 1]) for i in range(_ROWS)]
    _close(ball.project(delta, center, radii), torch.cat(alone), "project must take a radius for every row")
    _assert_inside(ball, center, ball.sample(center, Rng.seeded(3)), "sample")
    needed = 0.01 * ball.dual_norm(gradient)
    climbed = _dot(ball.to_plane(gradient, needed, center), gradient)
    _require(bool((climbed >= needed * (1 - 1e-3)).all()), "to_plane must climb as much as is needed")


def assert_attack(attack: Attack, ball: Ball | None = None, features: int = 6) -> None:
    """An attack: it reports where it went, stays in its ball, follows from its draws, and breaks what is easy.

    `ball` says in which norm it reports distances if it has no radius; else it is `attack.ball`.  Points lie in
    [.3, .7], so a box of [0, 1] holds them.
    """
    within: Ball = attack.ball if ball is None else ball  # type: ignore[attr-defined]
    network, inputs, labels, distance = _linear(within, features)
    rows = RowRng(0, torch.arange(_ROWS))
    with frozen(network):
        moved = _leaving_all_as_it_was(attack, network, inputs, labels, rows)
        some = attack(network, inputs[3:7], labels[3:7], rows.at(torch.arange(3, 7)))
        broken = network(moved.points).argmax(1) != labels
    _close(moved.points, inputs + moved.delta, "points must be inputs + delta")
    _close(moved.distance, within.norm(moved.delta), "distance must be the norm of delta")
    _close(some.delta, moved.delta[3:7], "what it finds for a point must not depend on the batch")
    if ball is None:
        _assert_inside(within, inputs, moved.delta, "what it returns")
    _require(bool(broken[distance <= within.radius / 2].any()), "it must break a point that is within half the radius")


def assert_method(method: Method, features: int = 6) -> None:
    """A method: its search leaves the network as it was and follows from its draws, and its loss has gradients."""
    with Rng.seeded(0).as_global():
        layers = nn.Sequential(nn.Linear(features, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    _assert_trains(method, Single(at_input(layers)).double(), _points(_ROWS, features))


def assert_estimator(estimator: Estimator, method: Method | None = None) -> None:
    """An estimator: all members answer, answers can be repeated, weights can be loaded, and it can be trained.

    `method` is what it is trained with here, by default the clean loss.
    """
    points, labels = _points(_ROWS, 4).float(), torch.arange(_ROWS) % 3

    def build(number: int) -> nn.Module:
        with Rng.seeded(number, purpose="weights").as_global():
            return MLP(4, 8, 8, 3, dropout=0.2)

    network = estimator.network(build, AtInput(), Dataset(points, labels)).eval()
    assert_network(network, points)
    bare = estimator.network(build, AtInput(), None).eval()
    bare.load_state_dict(network.state_dict())
    _close(bare(points), network(points), "made without examples it must take the weights of another")
    _assert_trains(method or standard(), network, points)


def assert_network(network: Network, points: Points) -> None:
    """In eval mode: logits [member, row, class] whose mean probability is the answer, the same whenever asked for."""
    with torch.no_grad():
        before, logits = torch.get_rng_state(), network.logits(network.encode(points))
        _require(logits.ndim == 3 and logits.shape[1] == len(points), "logits must be [member, row, class]")
        _close(network(points).exp(), logits.softmax(-1).mean(0), "the answer must be the mean probability")
        again, alone = (network.logits(network.encode(some)) for some in (points, points[2:3]))
        _require(torch.equal(torch.get_rng_state(), before), "in eval mode nothing may draw from torch's generator")
    _require(torch.equal(again, logits), "answers in eval mode must be the same when asked for again")
    _close(alone, logits[:, 2:3], "an answer must not depend on the batch")
    _require(network.penalty().shape == (), "penalty must be one number")


def _assert_trains(method: Method, network: Network, points: Points) -> None:
    labels = torch.arange(len(points)) % 3
    moved = _leaving_all_as_it_was(method.perturb, network.train(), points, labels, Rng.seeded(0))
    again = method.perturb(network, points, labels, Rng.seeded(0))
    _require(torch.equal(moved.delta, again.delta), "the same draws must lead to the same places")
    with Rng.seeded(0).as_global():
        loss = method.loss_at(network, points, labels, moved)
    network.zero_grad()
    loss.backward()
    _require(loss.shape == (), "the loss must be one number")
    for name, parameter in network.named_parameters():
        reached = parameter.grad is not None and bool(parameter.grad.isfinite().all()) and bool(parameter.grad.any())
        _require(reached, f"{name} must get a finite gradient that is not 0")


def _leaving_all_as_it_was(
    perturb: Perturbation, network: Network, inputs: Points, labels: Labels, rng: AnyRng
) -> Perturbed:
    """Where it leads, once it is known that weights, gradients, modes and torch's generator are as they were."""
    before, chance = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    modes = [module.training for module in network.modules()]
    moved = perturb(network, inputs, labels, rng)
    after = network.state_dict()
    _require(all(torch.equal(after[name], value) for name, value in before.items()), "weights and buffers must stay")
    _require(all(parameter.grad is None for parameter in network.parameters()), "weights must get no gradients")
    _require([module.training for module in network.modules()] == modes, "modes must stay")
    _require(torch.equal(torch.get_rng_state(), chance), "torch's generator must not be drawn from: take the rng")
    _require(bool(moved.delta.isfinite().all()), "delta must be finite")
    return moved


def _assert_inside(ball: Ball, center: Encoded, delta: Encoded, what: str) -> None:
    _require(delta.shape == center.shape, f"{what} must have the shape of the points")
    _require(bool((ball.norm(delta) <= ball.radius * (1 + _ROUNDING)).all()), f"{what} must stay within the radius")
    _close(ball.box.clamp(delta, center), delta, f"{what} must stay in the box")


def _linear(ball: Ball, features: int) -> tuple[Network, Points, Labels, PerSample]:
    """A network of which the boundary is known, points, and their distances to it without a box.

    All classes meet at the mean of the points, which come so near to it that half of them are within radius / 4.
    """
    with Rng.seeded(0).as_global():
        layer = nn.Linear(features, 10).double()
    inputs = _points(_ROWS, features)
    middle = inputs.mean(0)
    with torch.no_grad():
        layer.bias.copy_(-layer.weight @ middle)
        logits = layer(inputs)
        labels = logits.argmax(1)
        lead = logits.gather(1, labels[:, None]) - logits
        slopes = layer.weight[labels][:, None] - layer.weight
        distance = lead / ball.dual_norm(slopes.flatten(0, 1)).view(_ROWS, 10).clamp_min(1e-12)
    distance = distance.scatter(1, labels[:, None], torch.inf).amin(1)
    scale = (ball.radius / 4 / distance.median()).clamp_max(1.0)
    return Single(at_input(layer)).eval(), middle + scale * (inputs - middle), labels, scale * distance


def _points(rows: int, features: int) -> Points:
    return 0.3 + 0.4 * Rng.seeded(7).uniform(torch.empty(rows, features, dtype=torch.float64))


def _dot(one: Encoded, other: Encoded) -> PerSample:
    return (one * other).flatten(1).sum(1)


def _close(one: Tensor, other: Tensor, what: str) -> None:
    one, other = one.detach(), other.detach()
    off = float((one - other).abs().max())
    _require(torch.allclose(one, other, rtol=_ROUNDING, atol=_ROUNDING), f"{what}, got one that is off by {off:g}")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)
