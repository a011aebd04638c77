"""What must hold of every norm, attack, estimator and method, for tests of new ones: see docs/add-a-norm.md.

Each function raises an AssertionError that says what does not hold.  The library's parts are held to the same.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from widemargin.data.dataset import Dataset
from widemargin.measure.accuracy import accuracy
from widemargin.measure.robustness import robust_accuracy
from widemargin.method import Method
from widemargin.networks.mlp import MLP
from widemargin.perturb.attack import Attack, Perturbation, Perturbed
from widemargin.perturb.balls import OPEN, UNIT, Ball, Linf, Norm
from widemargin.perturb.frozen import frozen
from widemargin.perturb.pgd import pgd_search
from widemargin.recipes import standard
from widemargin.rng import AnyRng, Rng, RowRng
from widemargin.shapes import Encoded, Labels, PerSample, Points
from widemargin.training.checkpoint import load_training, load_weights, save_training, save_weights
from widemargin.training.loop import Training, continue_training
from widemargin.training.plan import Adam, Plan, Updates
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.estimators import AtInput, Estimator
from widemargin.uncertainty.network import Network, in_eval_mode
from widemargin.uncertainty.single import Single

_ROWS = 12
_ROUNDING = 1e-5
"""A norm may compute in float32."""
_REACHES = ("all", "half", "none")
"""Of which points an attack could break: what it does with a batch of which nothing is left, or all, differs."""
_PLAN = Plan(Updates(6), Adam(0.01), batch=8)
_ATTACK = pgd_search(Linf(0.2, OPEN), 0.1, 5)


def assert_ball(norm: Norm, features: int = 6) -> None:
    """A norm: its steepest step, its dual, its projection, its samples and its step to a plane agree.

    `features` is how many a point of it has.
    """
    for box in (OPEN, UNIT, UNIT.holding(tuple(range(1, features, 3)))):
        for radius in (0.05, 0.7):
            _assert_ball(norm(radius, box), features)
            _assert_to_plane(norm(radius, box), features)
    _require(norm(0.5) == norm(0.5), "equal radii and boxes must make equal balls: it must be a frozen dataclass")


def _assert_ball(ball: Ball, features: int) -> None:
    center = _points(features)
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


def _assert_to_plane(ball: Ball, features: int) -> None:
    center = _points(features)
    gradient = Rng.seeded(1).normal(center)
    corner = ball.box.clamp(9 * gradient.sign(), center)
    # A little, and so much that features meet the box.
    for needed in (0.01 * ball.dual_norm(ball.box.free(gradient)), 0.7 * _dot(corner, gradient)):
        step = ball.to_plane(gradient, needed, center)
        climbed = _dot(step, gradient)
        _require(bool((climbed >= needed * (1 - 1e-3)).all()), "to_plane must climb as much as is needed")
        _require(bool((climbed <= needed * (1 + 1e-3)).all()), "to_plane must climb no more than is needed")
        _close(ball.box.clamp(step, center), step, "to_plane must stay in the box")
    if ball.box.low == UNIT.low:
        far = ball.to_plane(gradient, 99 * _dot(corner, gradient), center)
        _close(far, corner, "to_plane must go to the corner of the box where even that is not enough")
    _require(not ball.to_plane(gradient, -needed, center).any(), "to_plane must go nowhere where nothing is needed")


def assert_attack(attack: Attack, ball: Ball | None = None, features: int | tuple[int, ...] = 6) -> None:
    """An attack: it reports where it went, stays in its ball, follows from its draws, and breaks what is easy.

    `ball` says in which norm it reports distances, and in which box it stays, if it has no radius; else it is its own.
    `features` may be the shape of an image.  Points lie in [.3, .7], so a box of [0, 1] holds them.
    """
    within = ball or _ball_of(attack)
    if within is None:
        raise AssertionError("an attack without a ball needs one, in whose norm distances are checked")
    for reach in _REACHES:
        inputs, moved = _assert_attack(attack, within, features, reach)
        if ball is None:
            _assert_inside(within, inputs, moved.delta, "what it returns")


def _assert_attack(attack: Attack, ball: Ball, features: int | tuple[int, ...], reach: str) -> tuple[Points, Perturbed]:
    network, inputs, labels, distance = _linear(ball, features, reach)
    rows = RowRng(0, torch.arange(_ROWS))
    with frozen(network):
        moved = _leaving_all_as_it_was(attack, network, inputs, labels, rows)
        some = attack(network, inputs[3:7], labels[3:7], rows.at(torch.arange(3, 7)))
        by_block = attack(network, inputs, labels, Rng.seeded(0))
        broken = network(moved.points).argmax(1) != labels
    for one in (moved, by_block):
        _close(one.points, inputs + one.delta, "points must be inputs + delta")
        _close(one.distance, ball.norm(one.delta), "distance must be the norm of delta")
        _close(ball.box.clamp(one.delta, inputs), one.delta, "what it returns must stay in the box")
    _close(some.delta, moved.delta[3:7], "what it finds for a point must not depend on the batch")
    near = distance <= ball.radius / 2
    _require(bool(broken[near].any() | ~near.any()), "it must break a point that is within half the radius")
    return inputs, moved


def assert_method(method: Method, features: int = 6, rounding: float = _ROUNDING) -> None:
    """A method: it trains a network with batch-norm and dropout, and a sample's path does not depend on its batch.

    `rounding` is by how much that may differ; all is computed in float64.
    """
    # Up to the edge of the box; of our projections none stands on the boundary there, where rounding decides.
    points = _points(features, 0.0, 0.8)
    with Rng.seeded(0).as_global():
        layers = nn.Sequential(nn.Linear(features, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
        # For running statistics that are not the first ones.
        layers.double()(points)
    network = Single(at_input(layers))
    labels = _labels(network, points)
    together = method.perturb(network, points, labels, Rng.seeded(*range(_ROWS)))
    for row in range(0, _ROWS, 2):
        # With one generator for every row, each draws the same alone as in company.
        alone = method.perturb(network, points[row : row + 1], labels[row : row + 1], Rng.seeded(row))
        for one, other in ((alone.delta[0], together.delta[row]), (alone.distance[0], together.distance[row])):
            _close(one, other, "where a sample is moved must not depend on its batch", rounding)
    assert_trains(method, network, points, rounding)


def assert_estimator(estimator: Estimator, method: Method | None = None) -> None:
    """An estimator: all members answer, answers can be repeated, weights can be loaded, and it can be trained.

    `method` is what it is trained with here, by default the clean loss.
    """
    method, points = method or standard(), _points(4).float()
    examples = Dataset(points, torch.arange(_ROWS) % 3)

    def build(number: int) -> nn.Module:
        with Rng.seeded(number, purpose="weights").as_global():
            return MLP(4, 8, 8, 3, dropout=0.2)

    network = estimator.network(build, AtInput(), examples)
    assert_network(network.eval(), points)
    bare = estimator.network(build, AtInput(), None).eval()
    bare.load_state_dict(network.state_dict())
    with torch.no_grad():
        answers = bare(points), network(points)
    _close(*answers, "made without examples it must take the weights of another")
    assert_resumes(method, network, examples)
    assert_trains(method, network, points)


def assert_network(network: Network, points: Points) -> None:
    """In eval mode: logits [member, row, class] whose mean probability is the answer, the same whenever asked for.

    Also by a copy, and by another network that loads its weights.
    """
    with torch.no_grad():
        before, logits = torch.get_rng_state(), network.logits(network.encode(points))
        _require(logits.ndim == 3 and logits.shape[1] == len(points), "logits must be [member, row, class]")
        _require(len(logits) == 1 or bool((logits.std(0) > 0).any()), "members that never differ are one")
        _close(network(points).exp(), logits.softmax(-1).mean(0), "the answer must be the mean probability")
        _require(torch.equal(torch.get_rng_state(), before), "in eval mode nothing may draw from torch's generator")
        with Rng.seeded(1).as_global():
            again = network.logits(network.encode(points))
        some = [network.logits(network.encode(points[rows])) for rows in (slice(2, 3), slice(0, 7))]
        penalty = network.penalty()
    _require(torch.equal(again, logits), "answers in eval mode must be the same when asked for again")
    _close(torch.cat(some, 1), logits[:, [2, *range(min(7, len(points)))]], "an answer must not depend on the batch")
    _require(penalty.shape == (), "penalty must be one number")
    _assert_copies(network, points)
    _assert_attacked(network, points)


def _assert_copies(network: Network, points: Points) -> None:
    copied, other = copy.deepcopy(network), copy.deepcopy(network)
    with torch.no_grad(), TemporaryDirectory() as folder:
        for parameter in other.parameters():
            parameter.add_(0.1)
        save_weights(Path(folder) / "weights.safetensors", network, {})
        load_weights(Path(folder) / "weights.safetensors", other)
        _require(torch.equal(copied(points), network(points)), "a copy must give the same answers")
        _require(torch.equal(other(points), network(points)), "with the same weights it must give the same answers")


def _assert_attacked(network: Network, points: Points) -> None:
    examples = Dataset(points, _labels(network, points))
    once, again = (robust_accuracy(network, examples, _ATTACK) for _ in range(2))
    _require(once == again, "an attack must find the same when it is repeated")
    _require(once <= accuracy(network, examples), "no more points can be right under attack than without")


def assert_resumes(method: Method, network: Network, examples: Dataset) -> None:
    """A training that is interrupted goes on from its checkpoint, bit by bit, whatever is measured in between."""
    whole, half, again = (Training.begin(copy.deepcopy(network).train(), _PLAN) for _ in range(3))
    losses = _losses(whole, examples, method, 6)
    first = _losses(half, examples, method, 3)
    accuracy(half.network, examples)
    with TemporaryDirectory() as folder, Rng.seeded(1).as_global():
        save_training(Path(folder) / "checkpoint.safetensors", half, "key", {})
        load_training(Path(folder) / "checkpoint.safetensors", again, "key")
        _require(first + _losses(again, examples, method, 3) == losses, "losses must be those of a training in one go")
    weights = again.network.state_dict()
    for name, value in whole.network.state_dict().items():
        _require(torch.equal(value, weights[name]), f"{name} must be that of a training in one go")


def _losses(training: Training, examples: Dataset, method: Method, updates: int) -> list[float]:
    return [record.loss for record in islice(continue_training(training, examples, method, _PLAN), updates)]


def assert_trains(method: Method, network: Network, points: Points, rounding: float = _ROUNDING) -> None:
    """A method on a network: its search stays in its ball, leaves the network as it was and follows from its draws, and
    its loss has gradients."""
    labels, chance = _labels(network, points), Rng.seeded(0)
    with _half_trained(network):
        moved = _leaving_all_as_it_was(method.perturb, network, points, labels, chance)
        again = method.perturb(network, points, labels, Rng.seeded(0))
    _require(torch.equal(moved.delta, again.delta), "the same draws must lead to the same places")
    ball = _ball_of(method.perturb)
    if ball is not None:
        with torch.no_grad(), in_eval_mode(network):
            center = network.encode(points)
        _assert_inside(ball, center, moved.delta, "where a search leads", rounding)
        _require(bool(moved.delta.any()), "a search with a ball must move something")
    _assert_gradients(method, network, points, labels, moved)


def _assert_gradients(method: Method, network: Network, points: Points, labels: Labels, moved: Perturbed) -> None:
    with Rng.seeded(0).as_global():
        loss = method.loss_at(network, points, labels, moved)
    loss.backward()
    _require(loss.shape == (), "the loss must be one number")
    for name, parameter in network.named_parameters():
        reached = parameter.grad is not None and bool(parameter.grad.isfinite().all()) and bool(parameter.grad.any())
        _require(reached, f"{name} must get a finite gradient that is not 0")
    network.zero_grad()


@contextmanager
def _half_trained(network: Network) -> Iterator[None]:
    """In train mode but for one module, with a gradient left over and a weight that is not trained."""
    first, *_, last = [*network.parameters()] * 2
    network.train()
    [*network.modules()][-1].eval()
    first.grad = torch.ones_like(first)
    last.requires_grad_(False)
    yield
    network.train().zero_grad()
    last.requires_grad_(True)


def _ball_of(perturb: Any) -> Ball | None:
    """Of a search, or of what a wrapper holds."""
    inner = getattr(perturb, "search", None) or getattr(perturb, "attack", None)
    ball: Ball | None = getattr(perturb, "ball", None) if inner is None else _ball_of(inner)
    return ball


def _labels(network: Network, points: Points) -> Labels:
    with torch.no_grad(), in_eval_mode(network):
        classes: int = network(points).shape[-1]
    return torch.arange(len(points)) % classes


def _leaving_all_as_it_was(
    perturb: Perturbation, network: Network, inputs: Points, labels: Labels, rng: AnyRng
) -> Perturbed:
    """Where it leads, once it is known that all is as it was."""
    before = _state(network)
    moved = perturb(network, inputs, labels, rng)
    after = _state(network)
    for what, values in before.items():
        _require(all(map(_same, values, after[what])), what)
    _require(bool(moved.delta.isfinite().all()), "delta must be finite")
    return moved


def _state(network: Network) -> dict[str, list[Any]]:
    """What a search must leave alone, by what is said if it does not."""
    weights, parts = [*network.parameters()], [*network.modules()]
    return {
        "weights and buffers must stay": [*copy.deepcopy(network.state_dict()).values()],
        "weights must get no gradients": [None if one.grad is None else one.grad.clone() for one in weights],
        "which weights are trained must stay": [one.requires_grad for one in weights],
        "modes must stay": [one.training for one in parts],
        "no hooks may be left": [len(one._forward_hooks) + len(one._forward_pre_hooks) for one in parts],
        "torch's generator must not be drawn from: take the rng": [torch.get_rng_state()],
    }


def _same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) and isinstance(other, Tensor) else one is other


def _assert_inside(ball: Ball, center: Encoded, delta: Encoded, what: str, rounding: float = _ROUNDING) -> None:
    _require(delta.shape == center.shape, f"{what} must have the shape of the points")
    _require(bool((ball.norm(delta) <= ball.radius * (1 + rounding)).all()), f"{what} must stay within the radius")
    _close(ball.box.clamp(delta, center), delta, f"{what} must stay in the box", rounding)


class _NeverEmpty(nn.Module):
    """Many networks refuse an empty batch."""

    def forward(self, points: Points) -> Points:
        _require(len(points) > 0, "the network must not be asked about an empty batch")
        return points.flatten(1)


def _linear(ball: Ball, features: int | tuple[int, ...], reach: str) -> tuple[Network, Points, Labels, PerSample]:
    """A network of which the boundary is known, points, and their distances to it without a box.

    All classes meet at the mean of the points, which come so near to it that half of them, or all, are within radius
    / 4; if none shall be in reach, one class is far ahead everywhere.
    """
    inputs = _points(features)
    with Rng.seeded(0).as_global():
        layer = nn.Linear(inputs[0].numel(), 10).double()
    network = Single(at_input(nn.Sequential(_NeverEmpty(), layer))).eval()
    middle = inputs.mean(0)
    with torch.no_grad():
        layer.bias.copy_(-layer.weight @ middle.flatten())
        if reach == "none":
            layer.bias[0] += 99 * (1 + ball.radius) * layer.weight.abs().sum()
        distance, labels = _distance(ball, layer, inputs)
        if reach == "none":
            return network, inputs, labels, distance
        near = distance.median() if reach == "half" else distance.max()
        scale = (ball.radius / 4 / near).clamp_max(1.0)
    return network, middle + scale * (inputs - middle), labels, scale * distance


def _distance(ball: Ball, layer: nn.Linear, inputs: Points) -> tuple[PerSample, Labels]:
    logits = layer(inputs.flatten(1))
    labels = logits.argmax(1)
    lead = logits.gather(1, labels[:, None]) - logits
    slopes = (layer.weight[labels][:, None] - layer.weight).view(-1, *inputs.shape[1:])
    steepness = ball.dual_norm(ball.box.free(slopes)).view_as(logits).clamp_min(1e-12)
    return (lead / steepness).scatter(1, labels[:, None], torch.inf).amin(1), labels


def _points(features: int | tuple[int, ...], low: float = 0.3, high: float = 0.7) -> Points:
    shape = (features,) if isinstance(features, int) else features
    return low + (high - low) * Rng.seeded(7).uniform(torch.empty(_ROWS, *shape, dtype=torch.float64))


def _dot(one: Encoded, other: Encoded) -> PerSample:
    return (one * other).flatten(1).sum(1)


def _close(one: Tensor, other: Tensor, what: str, rounding: float = _ROUNDING) -> None:
    one, other = one.detach(), other.detach()
    off = float((one - other).abs().max())
    _require(torch.allclose(one, other, rtol=rounding, atol=rounding), f"{what}, got one that is off by {off:g}")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)
