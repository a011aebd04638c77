"""From the words of the command line to a Run; the published settings hold where nothing is said."""

from __future__ import annotations

import difflib
import inspect
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from widemargin import recipes
from widemargin.cli.local_data import OwnData, own_data
from widemargin.cli.verbs.train import Train
from widemargin.data.augment import CropFlip
from widemargin.data.checks import ClassName
from widemargin.data.dataset import Dataset, Splits
from widemargin.data.images import ImageSet, image_sets
from widemargin.data.limits import listed
from widemargin.data.schema import apart
from widemargin.measure.neighbors import NEAREST
from widemargin.measure.separation import auto_radius
from widemargin.method import Method, balanced, with_category_changes
from widemargin.networks.mlp import FlatMLPSpec, MLPSpec
from widemargin.networks.normalized import NormalizedSpec
from widemargin.networks.spectral import ResidualMLPSpec
from widemargin.parts import choices
from widemargin.perturb.balls import OPEN, UNIT, Ball, Box, Linf
from widemargin.perturb.categories import WithCategoryChanges, changes_of
from widemargin.perturb.objectives import CLIMBED, Objective
from widemargin.perturb.pgd import pgd_search
from widemargin.perturb.search import Search
from widemargin.runs.run import NetworkSpec, Run, Validation
from widemargin.runs.user_network import UserNetwork
from widemargin.training.plan import SGD, Adam, Average, Descent, Epochs, NoAugment, NoAverage, Plan, Schedule, jointly
from widemargin.uncertainty.deep_kernel import check_deep_kernel
from widemargin.uncertainty.estimators import (
    AtInput,
    AtModule,
    BeforeHead,
    DeepKernelSpec,
    Estimator,
    Place,
    SingleSpec,
)

Number = TypeVar("Number", int, float)
_NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    # First: where no --alpha is given, it follows from --eps.
    "eps validate_eps": ("a number of at least 0", lambda value: 0 <= value < math.inf),
    "epochs batch steps capacity width validate_every": ("a whole number of at least 1", lambda value: value >= 1),
    "dropout_draws": ("a whole number of at least 1", lambda value: value >= 1),
    "members": ("a whole number of at least 2", lambda value: value >= 2),
    "patience": ("a whole number of at least 0", lambda value: value >= 0),
    "alpha scale lr": ("a number above 0", lambda value: 0 < value < math.inf),
    "weight": ("a number of at least 0", lambda value: 0 <= value < math.inf),
    "fraction": ("above 0 and at most 1", lambda value: 0 < value <= 1),
    "dropout": ("at least 0 and below 1", lambda value: 0 <= value < 1),
}
"""What each option may be, said in its own name rather than in that of the part it becomes."""
_ROWS_OF_A_CLASS = 5
"""With fewer on average there is a warning."""
_SLACK = 1e-6
"""For rounding, as balls have it."""
_STEPS, _SHARE_OF_EPS, _SHARE_OF_SINGLE_STEP = 10, 0.25, 1.25
MEASURES: dict[str, Objective] = {name.replace(" ", "-"): measure for name, measure in CLIMBED.items()}


@dataclass(frozen=True)
class Defaults:
    """What is taken where nothing is said: paper-published settings, or a start for one's own data."""

    network: str
    optimizer: str = "adam"
    epochs: int = 100
    attacked: float = 0.1
    batch: int = 256


_DEFAULTS = {
    "fashion-mnist": Defaults("lenet"),
    "mnist": Defaults("lenet"),
    "digits": Defaults("lenet", batch=32),
    "svhn": Defaults("resnet18-he", "sgd", 60, 0.03),
    "cifar-10": Defaults("resnet18", "sgd", 60, 0.03),
    "cifar-100": Defaults("resnet18", "sgd", 60, 0.03),
}


def describe(words: Train) -> tuple[str, Run, Splits]:
    """A title, the run, and its data, which had to be read to know its shape."""
    check_seed(words.seed)
    asked, words = words, _with_steps(replace(words, eps=1.0) if words.eps == "auto" else words)
    if asked.eps == "auto" and words.eps_column:
        raise ValueError("--eps-column says how much --eps is in a column: give --eps as a number, got auto")
    _check_numbers(words)
    named = _box_named(words)
    # A wrong word must not wait for a download.
    _method(words, named or OPEN)
    estimator = _estimator(words)
    average = _average(words.average)
    _descent(words, "adam")
    data = data_named(words)
    drawn = data.draw()
    image = drawn.train.stored.ndim == 4
    few = min(256, max(16, len(drawn.train) // 40), len(drawn.train))
    usual = _DEFAULTS.get(words.data) or Defaults("resnet18" if image else "mlp", batch=few)
    if asked.eps == "auto":
        words = _with_steps(replace(asked, eps=_auto_eps(asked, drawn.train)))
    inputs = box_of(drawn.train)
    if words.fixed and (words.latent or words.cut):
        raise ValueError("--fixed holds columns, which latent space has not: leave out --latent and --cut")
    changes = changes_of(drawn.train.schema)
    if changes is not None and (words.latent or words.cut):
        raise ValueError(
            "--perturb-categories changes columns, which latent space has not: leave out --latent and --cut"
        )
    box = inputs if named is None else named.holding(inputs.fixed)
    _check_values(drawn.train, box)
    space = (named or OPEN) if words.latent or words.cut else box
    method = with_category_changes(_weighted(words, _method(words, space), drawn.train), changes)
    if words.augment and not image:
        raise ValueError("--augment is for images: leave it out for a table")
    plan = Plan(
        Epochs(_or(words.epochs, usual.epochs)),
        jointly(_descent(words, usual.optimizer), words.members or 1),
        _or(words.batch, usual.batch),
        CropFlip() if words.augment else NoAugment(),
        average,
        words.mixed,
    )
    attack = _attack(words, image, usual, box)
    changed = WithCategoryChanges(attack, changes) if attack is not None and changes is not None else attack
    validation = Validation(words.validate_every, changed)
    name = words.network or usual.network
    network = _normalized(words, _network(words, name, drawn.train), drawn.train)
    run = Run(data, network, method, plan, words.seed, _place(words), validation, estimator)
    auto = f", eps auto: {words.eps:g}" if asked.eps == "auto" else ""
    return f"{words.method} on {Path(words.data).name}, {name.rpartition('/')[2]}, seed {words.seed}{auto}", run, drawn


def _auto_eps(words: Train, examples: Dataset) -> float:
    """To three digits, as it is printed."""
    if words.latent or words.cut:
        raise ValueError("--eps auto follows from distances between inputs: with --latent or --cut give a number")
    if words.norm not in NEAREST:
        raise ValueError(f"--eps auto knows the norms {', '.join(NEAREST)}, got {words.norm}: give a number")
    radius = float(f"{auto_radius(words.method, examples.labelled(), words.norm):.3g}")
    if not radius > 0:
        raise ValueError(
            "--eps auto needs classes that are apart, got rows of different classes with the same values in all that "
            f"may change: `widemargin separation {words.data}` lists them; correct them, or give a number"
        )
    return radius


def _with_steps(words: Train) -> Train:
    """With steps that fit the radius where the method takes any and nothing is said."""
    wanted = inspect.signature(getattr(recipes, words.method.replace("-", "_"), recipes.standard)).parameters
    # A single step, from a random start, is a little longer than the radius (Wong et al. 2020).
    share = _SHARE_OF_EPS if "steps" in wanted else _SHARE_OF_SINGLE_STEP
    # Where --eps is missing that alone is said: this then stands for any step.
    alpha = share * (_radius(words) or 1.0) if words.alpha is None and "alpha" in wanted else words.alpha
    steps = _STEPS if words.steps is None and "steps" in wanted else words.steps
    return replace(words, alpha=alpha, steps=steps)


def box_of(examples: Dataset) -> Box:
    """Images are in [0, 1]; of tables, categories and what else must not change is held fixed."""
    if examples.stored.ndim == 4:
        return UNIT
    return OPEN if examples.schema is None else OPEN.holding(examples.schema.fixed)


def notes_on(drawn: Splits) -> tuple[str, ...]:
    """What is worth a warning of the data before it is trained on."""
    train, notes = drawn.train, (*drawn.notes, *_notes_on_labels(drawn.train))
    if train.schema is not None or train.stored.ndim != 2:
        return notes
    spreads = train.points.double().std(0, correction=0).tolist()
    return (*notes, *apart({f"feature {k}": spread for k, spread in enumerate(spreads)}))


def _notes_on_labels(train: Dataset) -> tuple[str, ...]:
    """A measurement may be taken for a class: its values have decimals, or hardly any two rows share one."""
    rows, names = len(train.known), train.names
    counted = f"{len(names)} classes for {rows:,} training rows"
    if any(map(_has_decimals, names)):
        return (
            f"labels are numbers with decimals, {listed(names)} ({counted}): if they are a measurement, name another "
            "column with --label",
        )
    if len(names) > 2 and rows < _ROWS_OF_A_CLASS * len(names):
        return (f"classes have few rows ({counted}): if the labels are no classes, name another column with --label",)
    return ()


def _has_decimals(name: ClassName) -> bool:
    try:
        return float(name) % 1 != 0
    except ValueError:
        return False


def _weighted(words: Train, method: Method, train: Dataset) -> Method:
    if words.class_weights is None:
        return method
    return replace(method, class_weights=balanced(train.labels, train.classes))


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**63:
        raise ValueError(f"--seed must be a whole number from 0 to 2^63 - 1, got {seed}")


def _check_numbers(words: Train) -> None:
    for names, (wanted, holds) in _NUMBERS.items():
        for word in names.split():
            value = getattr(words, word)
            if value is not None and not holds(value):
                raise ValueError(f"{_flag(word)} must be {wanted}, got {value}")


def _check_values(examples: Dataset, box: Box) -> None:
    """Before anything is trained, and in the words of the command line."""
    values = examples.stored
    # With features that are held fixed, the ball itself looks at the others.
    if box != UNIT or examples.white != 1 or not values.dtype.is_floating_point or not values.numel():
        return
    low, high = float(values.min()), float(values.max())
    if low < -_SLACK or high > 1 + _SLACK:
        advice = f"{'divide them by 255' if low >= 0 and high <= 255 else 'rescale them'}, or give --box open"
        kind = "pixels" if values.ndim == 4 else "values"
        raise ValueError(f"{kind} of --data must be from 0 to 1, got {low:g} to {high:g}: {advice} if all are valid")


def ball_named(norm: str, radius: float, box: Box) -> Ball:
    ball: Ball = _offered("norm", norm)(radius, box)
    return ball


def _offered(option: str, word: str) -> Callable[..., Any]:
    """What makes the part that an option names."""
    offered = choices(option)
    if word not in offered:
        raise ValueError(f"--{option} must be one of {', '.join(offered)}, got {word}")
    return offered[word]


def data_named(words: Train, flag: str = "--data") -> ImageSet | OwnData:
    if words.data in image_sets():
        own = [word for word in ("test", "validation") if getattr(words, word) is not None]
        if own:
            raise ValueError(f"--{own[0]} is for your own data, but {words.data} has splits of its own: leave it out")
        # As published: every seed holds out images of its own, but few images are the same few for all.
        return ImageSet(words.data, words.fraction, seed=words.seed if words.fraction == 1 else 42)
    path = Path(os.path.expanduser(words.data))
    if not path.exists():
        close = difflib.get_close_matches(words.data, image_sets(), n=1)
        hint = f"did you mean {close[0]}?" if close else "name what exists"
        raise ValueError(
            f"{flag} must be one of {', '.join(image_sets())}, a folder or a file, got {words.data}: {hint}"
        )
    if words.fraction != 1:
        raise ValueError("--fraction is for published images: of your own data give only what is to be used")
    return own_data(words, path.resolve())


def _method(words: Train, box: Box) -> Method:
    known = {
        name: value
        for name, value in vars(recipes).items()
        if inspect.isfunction(value) and value.__module__ == recipes.__name__ and not name.startswith("_")
    }
    name = words.method.replace("-", "_")
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {_said(close[0])}?" if close else f"it can be {', '.join(map(_said, known))}"
        raise ValueError(f"there is no method named {words.method}: {hint}")
    wanted = inspect.signature(known[name]).parameters
    given = {word: getattr(words, word) for word in ("alpha", "steps", "weight", "patience", "scale", "measure")}
    needs = ["eps" if word == "ball" else word for word in wanted]
    lacking = [
        f"--{word}"
        for word in needs
        if getattr(words, word) is None and (word == "eps" or wanted[word].default is inspect.Parameter.empty)
    ]
    if lacking:
        chosen = "; `--eps auto` chooses by the data" if "--eps" in lacking else ""
        raise ValueError(f"{words.method} needs {' and '.join(lacking)}: it takes {_flags(needs)}{chosen}")
    for word in ("eps", *given):
        if getattr(words, word) is not None and word not in needs:
            raise ValueError(f"{words.method} takes no --{word}: it takes {_flags(needs)}")
    arguments = {word: value for word, value in given.items() if value is not None}
    if words.measure is not None:
        arguments["measure"] = _measure(words)
    radius = _radius(words)
    if radius is not None:
        arguments["ball"] = ball_named(words.norm, radius, box)
    method = known[name](**arguments)
    assert isinstance(method, Method)
    return method


def _radius(words: Train) -> float | None:
    assert not isinstance(words.eps, str), "auto must have become a number"
    return words.eps


def _measure(words: Train) -> Objective:
    if words.measure not in MEASURES:
        raise ValueError(f"--measure must be one of {', '.join(MEASURES)}, got {words.measure}")
    return MEASURES[words.measure]


def _said(recipe: str) -> str:
    return recipe.replace("_", "-")


def _flags(words: list[str]) -> str:
    return ", ".join(f"--{word}" for word in words) or "nothing"


def _box_named(words: Train) -> Box | None:
    return None if words.box is None else UNIT if words.box == "unit" else OPEN


def _attack(words: Train, image: bool, usual: Defaults, box: Box) -> Search | None:
    """For tables there is no usual radius: without one the best weights are those of the best clean accuracy."""
    if image:
        eps = _or(words.validate_eps, usual.attacked)
        return pgd_search(Linf(eps, box), eps / 4, 10)
    trained = None if words.latent or words.cut else _radius(words)
    radius = trained if words.validate_eps is None else words.validate_eps
    return None if not radius else pgd_search(ball_named(words.norm, radius, box), radius / 4, 10)


def _network(words: Train, name: str, examples: Dataset) -> NetworkSpec:
    shape, classes = tuple(examples.stored.shape[1:]), examples.classes
    if ":" in name or name.endswith(".py"):
        return _sized(UserNetwork.at(name), words)
    if name == "mlp":
        return _table_network(words, shape, classes)
    networks = choices("network")
    if name not in networks:
        raise ValueError(f"--network must be one of {', '.join(networks)}, mlp or my_file.py:MyNet, got {name}")
    spec = networks[name]()
    if words.dropout_draws is not None and "dropout" not in _fields(spec):
        raise ValueError(f"--dropout-draws needs dropout layers, which {name} has not: take resnet18-dropout")
    return _sized(spec.for_data(shape, classes), words)


def _table_network(words: Train, shape: tuple[int, ...], classes: int) -> NetworkSpec:
    if words.deep_kernel:
        if len(shape) != 1:
            raise ValueError("--deep-kernel with an mlp is for tables: for images take lenet or resnet18")
        return _sized(ResidualMLPSpec(shape[0], classes), words)
    hidden = _or(words.width, 64)
    spec = MLPSpec if len(shape) == 1 else FlatMLPSpec
    return _sized(spec((math.prod(shape), hidden, hidden, classes)), replace(words, width=None))


def _normalized(words: Train, network: NetworkSpec, examples: Dataset) -> NetworkSpec:
    if words.mean is None and words.std is None:
        return network
    if examples.stored.ndim != 4:
        raise ValueError("--mean and --std are for images: a table is standardised by --standardize")
    if isinstance(network, UserNetwork):
        raise ValueError("--mean and --std are for our networks: let yours begin with its normalisation")
    channels = examples.stored.shape[1]
    mean, std = words.mean or (0.0,), words.std or (1.0,)
    for option, numbers in (("--mean", mean), ("--std", std)):
        if len(numbers) not in (1, channels):
            raise ValueError(f"{option} must have a number for each of {channels} channels, or one, got {len(numbers)}")
    return NormalizedSpec(network, mean, std)


def _sized(spec: Any, words: Train) -> NetworkSpec:
    """With the sizes that are asked for, which it must have."""
    asked = {word: getattr(words, word) for word in ("capacity", "width", "dropout")}
    if words.dropout_draws is not None and words.dropout is None and "dropout" in _fields(spec):
        asked["dropout"] = _DRAWN_DROPOUT
    for word, value in asked.items():
        if value is None:
            continue
        if word not in _fields(spec):
            having = [name for name, make in choices("network").items() if word in _fields(make())]
            raise ValueError(f"--{word} is for {', '.join([*having, *_OF_MLP.get(word, ())])}: leave it out")
        spec = replace(spec, **{word: value})
    network: NetworkSpec = spec
    return network


def _fields(spec: Any) -> set[str]:
    return {field.name for field in fields(spec)}


_OF_MLP = {"width": ("mlp",), "dropout": ("mlp",)}
_DRAWN_DROPOUT = 0.2
"""That of the paper's ResNet (App. F), where draws are asked for."""


def _estimator(words: Train) -> Estimator:
    """Of those that are registered, the one whose option is given."""
    given = {option: getattr(words, option, None) for option in choices("estimator")}
    given = {option: value for option, value in given.items() if value is not None and value is not False}
    flags = [_flag(option) for option in given]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(flags)} are different estimates of uncertainty: give one of them")
    if words.members is not None and (words.latent or words.cut):
        raise ValueError("--members have latent spaces of their own: leave out --latent and --cut")
    if words.dropout_draws is not None and words.dropout == 0:
        raise ValueError("--dropout-draws needs dropout, got --dropout 0: give a rate between 0 and 1")
    if words.deep_kernel and words.dropout:
        raise ValueError("--deep-kernel draws from its process: leave out --dropout")
    if words.measure == "mutual-information" and not given:
        *others, last = map(_flag, choices("estimator"))
        raise ValueError(f"--measure mutual-information needs several members: give {', '.join(others)} or {last}")
    if not given:
        return SingleSpec()
    ((option, value),) = given.items()
    make = choices("estimator")[option]
    estimator: Estimator = make() if value is True else make(value)
    if isinstance(estimator, DeepKernelSpec):
        # What is missing must be said before there is a folder.
        check_deep_kernel()
    return estimator


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _place(words: Train) -> Place:
    if words.latent and words.cut:
        raise ValueError("--latent and --cut say the same in two ways: give one of them")
    return AtModule(words.cut) if words.cut else BeforeHead() if words.latent else AtInput()


def _descent(words: Train, usual: str) -> Descent:
    if (words.optimizer or usual) == "adam":
        return Adam(_or(words.lr, 0.001), _schedule(words.schedule or "constant"))
    return SGD(_or(words.lr, 0.15), _schedule(words.schedule or "triangle"))


def _schedule(word: str) -> Schedule:
    schedule: Schedule = _offered("schedule", word)()
    return schedule


def _or(said: Number | None, usual: Number) -> Number:
    return usual if said is None else said


def _average(words: str | None) -> Average:
    if words is None:
        return NoAverage()
    name, _, number = words.partition(":")
    kinds = choices("average")
    try:
        average: Average = kinds[name](float(number)) if number else kinds[name]()
    except (KeyError, ValueError) as problem:
        raise ValueError(f"--average must be ema, ema:.99, swa or swa:.5, got {words} ({problem})") from None
    return average
