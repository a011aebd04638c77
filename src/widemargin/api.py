"""The front door: attack, predict, audit and measure any torch module on the data people have, a call each.

A model is any `nn.Module` that returns logits, or one of our Networks.  Data is a pair (x, y) of tensors, NumPy arrays
or frames, a TensorDataset, a DataLoader or a Dataset.  All is computed where the model is, or on a copy of it on
`device`; the model's modes, buffers and gradients stay as they are.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from widemargin.arguments import called_as
from widemargin.audit_report import AuditReport
from widemargin.auditing import runner
from widemargin.auditing.clock import Clock, seconds_of
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.target import AuditTarget
from widemargin.data.checks import check_labels
from widemargin.data.coerce import as_examples, as_labels, as_points, placed, whole
from widemargin.data.dataset import Dataset, Examples, Subset, digest
from widemargin.measure import accuracy as accuracies
from widemargin.measure import calibration as calibrations
from widemargin.measure import margin as planar
from widemargin.measure import separation as separations
from widemargin.measure.accuracy import BATCH_SIZE, check_all_labelled
from widemargin.measure.autoattack import Attacked, autoattack
from widemargin.measure.calibration import BINS, Calibration
from widemargin.measure.categories import changed_certified_radius, changed_distances
from widemargin.measure.certified import Certificate, certified_radius
from widemargin.measure.diagnostics import DIAGNOSES, Diagnosis
from widemargin.measure.distance import distances
from widemargin.measure.margin import Margins
from widemargin.measure.robustness import check_climbs_loss
from widemargin.measure.separation import Separation
from widemargin.measure.targeted import Towards
from widemargin.method import Method, check_method
from widemargin.perturb.apgd import APGD, TargetedAPGD, standard_targets
from widemargin.perturb.attack import Attack, OnInputs
from widemargin.perturb.balls import L2, OPEN, UNIT, Ball, Box, Linf, Norm, check_is_ball, check_is_box, norm_named
from widemargin.perturb.categories import CategoryChanges, FromChangedCategories, changes_of
from widemargin.perturb.fab import FAB, ShortestFAB
from widemargin.perturb.pgd import PGD
from widemargin.perturb.search import Search
from widemargin.perturb.square import Square
from widemargin.perturb.suites import Suite, standard
from widemargin.shapes import Labels, Points
from widemargin.training import loop
from widemargin.training.loop import Record
from widemargin.training.plan import Plan, check_is_plan
from widemargin.uncertainty.network import Network, check_network, in_eval_mode
from widemargin.uncertainty.prediction import Prediction, predicted
from widemargin.uncertainty.wrap import as_network, checked_device, device_of, dtype_of, on_device

Device = torch.device | str | None
_TRIED = 16
"""Points on which a model is tried before anything long begins."""
_PGD_STEPS = 40


@called_as()
def predict(model: nn.Module, x: Any, device: Device = None, batch_size: int = BATCH_SIZE) -> Prediction:
    """Classes, probabilities and uncertainties of points [rows, features...]."""
    network = as_network(on_device(model, device))
    points = as_points(x).to(device_of(network), dtype_of(network))
    check_network(network, points[:_TRIED])
    return predicted(network, points, batch_size)


@called_as()
def accuracy(model: nn.Module, data: Any, device: Device = None, batch_size: int = BATCH_SIZE) -> float:
    """The share of points that are classified right."""
    return accuracies.accuracy(*_ready(model, data, device), batch_size)


@called_as()
def attack(
    model: nn.Module,
    x: Any,
    y: Any,
    ball: Ball,
    method: str | Attack | Search = "apgd",
    targeted: int | Tensor | None = None,
    steps: int | None = None,
    seed: int = 0,
    device: Device = None,
    categories: CategoryChanges | None = None,
) -> Tensor:
    """Adversarial points: in the ball around each point one where the model is wrong, or the point itself.

    `method` is apgd, apgd-t, fab, square, pgd, autoattack (all of the standard in turn) or an attack of
    `wm.perturb`.  `targeted` is the class to reach, one for all points or one for each; then y may be None.
    `categories` of a table's rows may change first, apart from the ball; the ball's box must hold their features.
    """
    if y is None and targeted is None:
        raise ValueError("y must be the labels, got None: give them, or targeted=..., the class to reach")
    given = x if isinstance(x, Tensor) else None
    labels = torch.zeros(len(as_points(x)), dtype=torch.int64) if y is None and targeted is not None else y
    network, examples = _ready(model, (x, labels), device)
    if targeted is None:
        points = _attacked(network, examples, ball, method, steps, seed, categories).points
    else:
        targets = as_targets(targeted, len(examples))
        points = _towards(network, whole(examples), targets, ball, method, steps, seed, categories)
    return points.to(given) if given is not None and given.is_floating_point() else points.cpu()


@called_as()
def robust_accuracy(
    model: nn.Module,
    data: Any,
    ball: Ball,
    method: str | Attack | Search = "autoattack",
    steps: int | None = None,
    seed: int = 0,
    device: Device = None,
    categories: CategoryChanges | None = None,
) -> float:
    """The share of points that stay right wherever the attack moves them within the ball; `method` and `categories`
    as in `attack`, with those of a table that was read with `category_changes` by default."""
    network, examples = _ready(model, data, device)
    changes = _changes(examples, categories)
    return _attacked(network, examples, ball, method, steps, seed, changes).robust_accuracy


@called_as()
def margins(
    model: nn.Module,
    data: Any,
    norm: str | float | Norm = "l2",
    box: Box | None = None,
    seed: int = 0,
    device: Device = None,
    categories: CategoryChanges | None = None,
) -> Margins:
    """Each point's distance to the decision boundary.

    Of points in the plane, in l2 and linf and without a box, it is measured on a grid that is refined; elsewhere the
    nearest place that minimum-norm attacks found, an upper bound.  Without a `box` it is [0, 1] for images.
    If `categories` may change (by default as a table was read), it is the distance that the numbers must go then, and
    `changed` how many categories differ at that place.
    """
    network, examples = _ready(model, data, device)
    if box is not None:
        check_is_box("box", box)
    dataset, ball = whole(examples), norm_named(norm)
    box = _box(dataset) if box is None and dataset.schema is not None else box
    if box is None and dataset.stored.ndim == 2 and dataset.stored.shape[1] == 2 and ball in (L2, Linf):
        return planar.margins(network, dataset, p=ball.p)
    if ball.p is None:
        raise ValueError(f"margins are compared with the best possible, known for lp norms, got {ball.__name__}")
    box, changes = _box(dataset) if box is None else box, _changes(dataset, categories)
    if changes is None:
        nearest, changed = distances(network, examples, ball, box, seed=seed), None
    else:
        nearest = changed_distances(network, examples, ball, box, changes, seed)
        differ = changes.codes(nearest.places) != changes.codes(dataset.points)
        changed = differ.sum(1).cpu().numpy()
    margin, best, places = (
        tensor.detach().cpu().numpy()
        for tensor in (nearest.distance.double(), dataset.best_margins(ball.p).double(), nearest.places)
    )
    return Margins(margin, best, exact=False, places=places, changed=changed)


@called_as()
def certify(
    model: nn.Module, data: Any, ball: Ball, device: Device = None, categories: CategoryChanges | None = None
) -> Certificate:
    """The radius, up to the ball's, within which each point is proven to keep its class.

    If `categories` may change (by default as a table was read), whatever they become.
    """
    network, examples = _ready(model, data, device)
    check_is_ball(ball)
    changes = _changes(examples, categories)
    if changes is not None:
        return Certificate(ball, changed_certified_radius(network, examples, ball, changes))
    return Certificate(ball, certified_radius(network, examples, ball))


@called_as()
def calibration(model: nn.Module, data: Any, bins: int = BINS, device: Device = None) -> Calibration:
    """How well confidence agrees with accuracy: expected calibration error, likelihood, Brier score."""
    return calibrations.calibration(*_ready(model, data, device), bins)


@called_as()
def audit(
    model: nn.Module,
    data: Any,
    eps: float | Sequence[float],
    norm: str | float | Norm = "linf",
    box: Box | None = None,
    points: int = AuditConfig.points,
    seed: int = 0,
    budget: float | str | None = None,
    out: Path | str | None = None,
    device: Device = None,
    attacks: Suite = standard,
    diagnoses: Sequence[Diagnosis] = DIAGNOSES,
    categories: CategoryChanges | None = None,
) -> AuditReport:
    """Robust accuracy under AutoAttack at every radius with intervals, margins, certificates, and findings on trust.

    `budget` is in seconds, or a time such as "90s", "10m" or "2h".  With a folder `out` an interrupted audit goes on
    when the call is made again.  `attacks` makes those of a ball, AutoAttack's by default; docs/add-an-attack.md and
    docs/add-a-diagnosis.md show others.
    `categories` may change, too, counted apart from eps; by default as a table was read.
    """
    if box is not None:
        check_is_box("box", box)
    if isinstance(points, bool) or not isinstance(points, Integral) or points < 1:
        raise ValueError(f"points must be a whole number of at least 1, got {points!r}")
    network = as_network(on_device(model, device))
    dataset = whole(placed(as_examples(data), device_of(network), dtype_of(network)))
    check_all_labelled(dataset)
    check_labels(dataset.labels, len(dataset), check_network(network, dataset[torch.arange(1)][0]))
    balls = _balls(eps, norm, _box(dataset) if box is None else box)
    config = AuditConfig(
        balls,
        min(int(points), len(dataset)),
        seed,
        standard=attacks,
        diagnoses=tuple(diagnoses),
        categories=_changes(dataset, categories),
    )
    target = AuditTarget(network, type(model).__name__, _digest(model), dataset, "the data given")
    with tempfile.TemporaryDirectory() as folder:
        result = runner.audit(
            target, config, (Path(folder) if out is None else Path(out)) / "audit", Clock(seconds_of(budget))
        )
    assert result is not None
    return AuditReport(result)


@called_as()
def separation(data: Any, norm: str | float | Norm = "l2", rows: int | None = None, seed: int = 0) -> Separation:
    """The distance of each example to the nearest one of another class, and the radii that follow.

    `norm` is l2, linf or l1.  With `rows` only so many examples, drawn class by class, are measured against all: the
    default beyond a million, with 10,000.
    """
    return separations.separation(whole(as_examples(data)).labelled(), norm, rows, seed)


@called_as()
def train(
    model: nn.Module, data: Any, method: Method, plan: Plan, seed: int | Sequence[int] = 0, device: Device = None
) -> Iterator[Record]:
    """Train in place; a record after every update.  Nothing happens until the records are asked for.

    Replicas take a seed each.  On another `device` the model is moved there.
    """
    check_method(method)
    check_is_plan(plan)
    network = as_network(model)
    if device is not None:
        network.to(checked_device(device))
    examples = placed(as_examples(data), device_of(network), dtype_of(network))
    seeds = (seed,) if isinstance(seed, int) else tuple(seed)
    return loop.train(network, examples, method, plan, seeds)


def as_targets(targeted: int | Tensor, rows: int) -> Labels:
    """A class for every point."""
    if isinstance(targeted, bool):
        raise ValueError("targeted must be the class to reach, one for all points or one for each, got a truth value")
    if isinstance(targeted, int | Integral):
        return torch.full((rows,), int(targeted))
    if len(targeted) != rows:
        raise ValueError(f"targeted must be one class for all points or one for each of {rows}, got {len(targeted)}")
    return as_labels(targeted, rows).cpu()


def _ready(model: nn.Module, data: Any, device: Device) -> tuple[Network, Examples]:
    """A network and examples that fit each other, tried on a few points."""
    network = as_network(on_device(model, device))
    examples = placed(as_examples(data), device_of(network), dtype_of(network))
    classes = check_network(network, examples[torch.arange(min(_TRIED, len(examples)))][0])
    check_all_labelled(examples)
    check_labels(examples.labels, len(examples), classes)
    return network, examples


def _attacked(
    network: Network,
    examples: Examples,
    ball: Ball,
    method: str | Attack | Search,
    steps: int | None,
    seed: int,
    changes: CategoryChanges | None = None,
) -> Attacked:
    """The one place that knows how attacks are made and led."""
    check_is_ball(ball)
    inputs, _ = examples[torch.arange(1)]
    with torch.no_grad(), in_eval_mode(network):
        classes = int(network(inputs).shape[-1])
    attacks: Sequence[Attack] = _attacks(method, ball, classes, steps)
    if changes is not None:
        changes.check_box(ball.box)
        attacks = [FromChangedCategories(one, changes) for one in attacks]
    return autoattack(network, examples, ball, attacks, seed)


def _towards(
    network: Network,
    dataset: Dataset,
    targets: Labels,
    ball: Ball,
    method: str | Attack | Search,
    steps: int | None,
    seed: int,
    changes: CategoryChanges | None = None,
) -> Points:
    """All points with one target together: what attacks see is a network that tells the target from all others."""
    classes = check_network(network, dataset[torch.arange(1)][0])
    if not 0 <= int(targets.min()) <= int(targets.max()) < classes:
        raise ValueError(
            f"targets must be in 0..{classes - 1} for {classes} classes, got {int(targets.min())}..{int(targets.max())}"
        )
    others = replace(dataset, labels=torch.zeros_like(dataset.labels), names=(0,))
    points = dataset.points.clone()
    for target in targets.unique().tolist():
        rows = (targets == target).nonzero()[:, 0]
        part = _attacked(Towards(network, target), Subset(others, rows), ball, method, steps, seed, changes)
        points[rows.to(points.device)] = part.points
    return points


def _attacks(method: str | Attack | Search, ball: Ball, classes: int, steps: int | None) -> tuple[Attack, ...]:
    named: dict[str, Callable[[], tuple[Attack, ...]]] = {
        "apgd": lambda: (APGD(ball),),
        "apgd-t": lambda: (TargetedAPGD(ball, min(standard_targets(ball), classes - 1)),),
        "fab": lambda: (FAB(ball, min(9, classes - 1)),),
        "square": lambda: (Square(ball),),
        "pgd": lambda: (PGD(ball, _PGD_STEPS),),
        "autoattack": lambda: standard(ball, classes),
    }
    if not isinstance(method, str):
        own = _own_attack(method, ball, tuple(named))
        if steps is not None:
            raise ValueError(f"steps are for methods by name, got steps={steps!r} beside {own!r}: give it its own")
        return (own,)
    if method.lower() not in named:
        raise ValueError(f"method must be one of {', '.join(named)} or an attack of wm.perturb, got {method!r}")
    if method.lower() == "autoattack" and steps is not None:
        raise ValueError(
            f"autoattack has the fixed steps of the standard, got steps={steps!r}: leave them out, or choose one "
            "attack, such as method='apgd'"
        )
    attacks = named[method.lower()]()
    return attacks if steps is None else tuple(_with_steps(one, steps) for one in attacks)


def _own_attack(method: object, ball: Ball, names: Sequence[str]) -> Attack:
    """An attack or a search that was made before the call, if it is one of the ball."""
    given = method.perturb if isinstance(method, Method) else method
    search = given.search if isinstance(given, OnInputs) else given
    if isinstance(search, Search):
        check_climbs_loss(search)
    if isinstance(method, Method):
        raise ValueError("method must be an attack, got a way of training: give its search, method.perturb, or 'pgd'")
    within = getattr(search, "ball", ball)
    # Of attacks without a radius the ball gives norm and box.
    if within != ball and not isinstance(method, ShortestFAB):
        raise ValueError(f"the attack must be one in the ball {ball!r}, got one in {within!r}: make both with the same")
    attack: Any = OnInputs(search) if isinstance(search, Search) else method
    if not callable(attack) or not hasattr(attack, "name"):
        raise ValueError(
            f"method must be one of {', '.join(names)} or an attack of wm.perturb, called and with a name as in "
            f"docs/add-an-attack.md, got {method!r}"
        )
    made: Attack = attack
    return made


def _with_steps(one: Attack, steps: int) -> Attack:
    part: Any = one
    if "steps" not in {field.name for field in fields(part)}:
        raise ValueError(f"{one.name} has no steps: make it yourself, such as {one!r}, and give it as method")
    made: Attack = replace(part, steps=steps)
    return made


def _balls(eps: float | Sequence[float], norm: str | float | Norm, box: Box) -> tuple[Ball, ...]:
    given: Any = eps.tolist() if isinstance(eps, Tensor) else eps
    radii: list[Any] = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    for radius in radii:
        if isinstance(radius, bool) or not isinstance(radius, Real):
            raise ValueError(f"eps must be numbers, got {radius!r}: give eps=[8 / 255], and the norm as norm='linf'")
        if not 0 < float(radius) < math.inf:
            raise ValueError(f"eps must be one or more numbers above 0, got {radius}")
    if not radii:
        raise ValueError("eps must be one or more numbers above 0, got none")
    return tuple(norm_named(norm)(radius, box) for radius in sorted({float(radius) for radius in radii}))


def _box(dataset: Dataset) -> Box:
    """Images are scaled to [0, 1]; tables and points of the plane may lie anywhere."""
    if dataset.stored.ndim == 4:
        return UNIT
    return OPEN if dataset.schema is None else OPEN.holding(dataset.schema.fixed)


def _changes(examples: Examples, given: CategoryChanges | None) -> CategoryChanges | None:
    """As given, or as a table was read."""
    if isinstance(examples, Subset):
        return _changes(examples.of, given)
    return changes_of(examples.schema) if given is None else given


def _digest(model: nn.Module) -> str:
    """The same weights may answer otherwise in another network."""
    weights = digest(*(value for value in model.state_dict().values() if isinstance(value, Tensor)))
    return hashlib.sha256(f"{model!r} {weights}".encode()).hexdigest()[:16]
