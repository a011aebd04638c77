"""Which run do these words mean?  The published settings hold where nothing is said."""

from __future__ import annotations

import difflib
import inspect
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from widemargin import recipes
from widemargin.data.augment import CropFlip
from widemargin.data.dataset import Dataset, Splits
from widemargin.data.images import ImageSet, image_sets
from widemargin.data.local import ImageFolder, LocalData, Npz, Table
from widemargin.measure.robustness import pgd_attack
from widemargin.method import Method
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.named import NAMED, DropoutResNetSpec, LeNetSpec
from widemargin.networks.spectral import ResidualMLPSpec
from widemargin.perturb.balls import L1, L2, OPEN, UNIT, Ball, Box, Linf
from widemargin.perturb.objectives import (
    CLIMBED,
    Objective,
)
from widemargin.perturb.search import Search
from widemargin.runs.run import (
    AtInput,
    AtModule,
    BeforeHead,
    DeepKernelSpec,
    EnsembleSpec,
    Estimator,
    MCDropoutSpec,
    NetworkSpec,
    Place,
    SingleSpec,
    Trial,
    Validation,
    jointly,
)
from widemargin.runs.user_network import UserNetwork
from widemargin.training.plan import (
    EMA,
    SGD,
    SWA,
    Adam,
    Average,
    Constant,
    Cosine,
    Descent,
    Epochs,
    Multistep,
    NoAugment,
    NoAverage,
    Plan,
    Schedule,
    Triangle,
)
from widemargin.uncertainty.deep_kernel import check_deep_kernel

Number = TypeVar("Number", int, float)
_BALLS: dict[str, Callable[[float, Box], Ball]] = {"linf": Linf, "l2": L2, "l1": L1}
_SCHEDULES: dict[str, Schedule] = {
    "constant": Constant(),
    "triangle": Triangle(),
    "multistep": Multistep(),
    "cosine": Cosine(),
}
_NUMBERS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "epochs batch steps capacity width validate_every": ("a whole number of at least 1", lambda value: value >= 1),
    "patience": ("a whole number of at least 0", lambda value: value >= 0),
    "alpha scale lr": ("a number above 0", lambda value: 0 < value < math.inf),
    "weight": ("a number of at least 0", lambda value: 0 <= value < math.inf),
    "eps validate_eps": ("a number of at least 0", lambda value: 0 <= value < math.inf),
    "fraction": ("above 0 and at most 1", lambda value: 0 < value <= 1),
    "dropout": ("at least 0 and below 1", lambda value: 0 <= value < 1),
}
"""What each option may be, said in its own name rather than in that of the part it becomes."""
MEASURES: dict[str, Objective] = {name.replace(" ", "-"): measure for name, measure in CLIMBED.items()}


@dataclass(frozen=True)
class Choice:
    """The words, as `widemargin train --help` explains them."""

    data: str
    method: str
    network: str | None = None
    eps: float | None = None
    alpha: float | None = None
    steps: int | None = None
    weight: float | None = None
    patience: int | None = None
    scale: float | None = None
    measure: str | None = None
    norm: str = "linf"
    latent: bool = False
    cut: str | None = None
    epochs: int | None = None
    batch: int | None = None
    optimizer: str | None = None
    lr: float | None = None
    schedule: str | None = None
    augment: bool = False
    average: str | None = None
    mixed: bool = False
    fraction: float = 1.0
    capacity: int | None = None
    width: int | None = None
    members: int | None = None
    dropout: float | None = None
    dropout_draws: int | None = None
    deep_kernel: bool = False
    label: str = "label"
    unlabelled: int | None = None
    size: tuple[int, int] | None = None
    box: str | None = None
    validate_every: int = 1
    validate_eps: float | None = None
    seed: int = 0


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


def chosen(choice: Choice) -> tuple[str, Trial, Splits]:
    """A title, the run, and its data, which had to be read to know its shape."""
    check_seed(choice.seed)
    _check_numbers(choice)
    box = _box_named(choice)
    # A wrong word must not wait for a download.
    method = _method(choice, box or OPEN)
    members = _members(choice)
    average = _average(choice.average)
    data = data_named(choice)
    drawn = data.draw()
    image = drawn.train.stored.ndim == 4
    few = min(256, max(16, len(drawn.train) // 40), len(drawn.train))
    usual = _DEFAULTS.get(choice.data) or Defaults("resnet18" if image else "mlp", batch=few)
    inputs = UNIT if image else OPEN
    if box is None:
        method = _method(choice, OPEN if choice.latent or choice.cut else inputs)
    if choice.augment and not image:
        raise ValueError("--augment is for images: leave it out for a table")
    plan = Plan(
        Epochs(_or(choice.epochs, usual.epochs)),
        jointly(_descent(choice, usual.optimizer), choice.members or 1),
        _or(choice.batch, usual.batch),
        CropFlip() if choice.augment else NoAugment(),
        average,
        choice.mixed,
    )
    validation = Validation(choice.validate_every, _attack(choice, image, usual, box or inputs))
    name = choice.network or usual.network
    network = _network(choice, name, drawn.train)
    trial = Trial(data, network, method, plan, choice.seed, _place(choice), validation, members)
    return f"{choice.method} on {Path(choice.data).name}, {name.rpartition('/')[2]}, seed {choice.seed}", trial, drawn


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**63:
        raise ValueError(f"--seed must be a whole number from 0 to 2^63 - 1, got {seed}")


def _check_numbers(choice: Choice) -> None:
    for words, (wanted, holds) in _NUMBERS.items():
        for word in words.split():
            value = getattr(choice, word)
            if value is not None and not holds(value):
                raise ValueError(f"--{word.replace('_', '-')} must be {wanted}, got {value}")


def ball_named(norm: str, radius: float, box: Box) -> Ball:
    return _BALLS[norm](radius, box)


def data_named(choice: Choice, flag: str = "--data") -> ImageSet | LocalData:
    if choice.data in image_sets():
        # As published: every seed holds out images of its own, but few images are the same few for all.
        return ImageSet(choice.data, choice.fraction, seed=choice.seed if choice.fraction == 1 else 42)
    path = Path(os.path.expanduser(choice.data))
    if not path.exists():
        close = difflib.get_close_matches(choice.data, image_sets(), n=1)
        hint = f"did you mean {close[0]}?" if close else "name what exists"
        raise ValueError(
            f"{flag} must be one of {', '.join(image_sets())}, a folder or a file, got {choice.data}: {hint}"
        )
    if choice.fraction != 1:
        raise ValueError("--fraction is for published images: of your own data give only what is to be used")
    place = str(path.resolve())
    if path.suffix == ".npz":
        return LocalData(Npz(place, unlabelled=choice.unlabelled))
    if choice.unlabelled is not None:
        raise ValueError(
            "--unlabelled is for .npz files: in a table leave the cell empty, of images make a folder `unlabelled`"
        )
    return LocalData(ImageFolder(place, size=choice.size) if path.is_dir() else Table(place, choice.label))


def _method(choice: Choice, box: Box) -> Method:
    found = {
        name: value
        for name, value in vars(recipes).items()
        if inspect.isfunction(value) and value.__module__ == recipes.__name__ and not name.startswith("_")
    }
    name = choice.method.replace("-", "_")
    if name not in found:
        close = difflib.get_close_matches(name, found, n=1)
        hint = f"did you mean {_said(close[0])}?" if close else f"it can be {', '.join(map(_said, found))}"
        raise ValueError(f"there is no method named {choice.method}: {hint}")
    wanted = inspect.signature(found[name]).parameters
    given = {word: getattr(choice, word) for word in ("alpha", "steps", "weight", "patience", "scale", "measure")}
    needs = ["eps" if word == "ball" else word for word in wanted]
    lacking = [
        f"--{word}"
        for word in needs
        if getattr(choice, word) is None and (word == "eps" or wanted[word].default is inspect.Parameter.empty)
    ]
    if lacking:
        raise ValueError(f"{choice.method} needs {' and '.join(lacking)}: it takes {_flags(needs)}")
    for word in ("eps", *given):
        if getattr(choice, word) is not None and word not in needs:
            raise ValueError(f"{choice.method} takes no --{word}: it takes {_flags(needs)}")
    arguments = {word: value for word, value in given.items() if value is not None}
    if choice.measure is not None:
        arguments["measure"] = _measure(choice)
    if choice.eps is not None:
        arguments["ball"] = _BALLS[choice.norm](choice.eps, box)
    method = found[name](**arguments)
    assert isinstance(method, Method)
    return method


def _measure(choice: Choice) -> Objective:
    if choice.measure not in MEASURES:
        raise ValueError(f"--measure must be one of {', '.join(MEASURES)}, got {choice.measure}")
    return MEASURES[choice.measure]


def _said(recipe: str) -> str:
    return recipe.replace("_", "-")


def _flags(words: list[str]) -> str:
    return ", ".join(f"--{word}" for word in words) or "nothing"


def _box_named(choice: Choice) -> Box | None:
    return None if choice.box is None else UNIT if choice.box == "unit" else OPEN


def _attack(choice: Choice, image: bool, usual: Defaults, box: Box) -> Search | None:
    """For tables there is no usual radius: without one the best weights are those of the best clean accuracy."""
    if image:
        eps = _or(choice.validate_eps, usual.attacked)
        return pgd_attack(Linf(eps, box), eps / 4, 10)
    own = None if choice.latent or choice.cut else choice.eps
    radius = own if choice.validate_eps is None else choice.validate_eps
    return None if not radius else pgd_attack(_BALLS[choice.norm](radius, box), radius / 4, 10)


def _network(choice: Choice, name: str, examples: Dataset) -> NetworkSpec:
    shape, classes = tuple(examples.stored.shape[1:]), examples.classes
    if ":" in name or name.endswith(".py"):
        return _alone(choice, UserNetwork.at(name))
    if name == "mlp":
        if len(shape) != 1:
            raise ValueError("mlp is for tables: for images take lenet or resnet18")
        hidden, rate = _or(choice.width, 64), _or(choice.dropout, _usual_dropout(choice))
        if choice.deep_kernel:
            return _alone(replace(choice, width=None), ResidualMLPSpec(shape[0], classes, hidden))
        return _alone(replace(choice, width=None, dropout=None), MLPSpec((shape[0], hidden, hidden, classes), rate))
    if name not in NAMED:
        raise ValueError(f"--network must be one of {', '.join(NAMED)}, mlp or my_file.py:MyNet, got {name}")
    if len(shape) != 3:
        raise ValueError(f"{name} is for images: for tables take mlp")
    found = NAMED[name]
    if isinstance(found, LeNetSpec):
        if shape[1] != shape[2]:
            raise ValueError(f"lenet needs square images, got {shape[1]} x {shape[2]}: give a --size, or take resnet18")
        rate = _or(choice.dropout, _usual_dropout(choice))
        lenet = replace(found, classes=classes, channels=shape[0], side=shape[1], dropout=rate)
        return _alone(replace(choice, capacity=None, dropout=None), replace(lenet, capacity=_or(choice.capacity, 1)))
    if choice.dropout_draws is not None and not isinstance(found, DropoutResNetSpec):
        raise ValueError(f"--dropout-draws needs dropout layers, which {name} has not: take resnet18-dropout")
    resnet = replace(found, classes=classes, channels=shape[0], width=_or(choice.width, 64))
    if isinstance(resnet, DropoutResNetSpec):
        resnet = replace(resnet, dropout=_or(choice.dropout, resnet.dropout))
        choice = replace(choice, dropout=None)
    return _alone(replace(choice, width=None), resnet)


def _alone(choice: Choice, shape: NetworkSpec) -> NetworkSpec:
    """Refuse what this network does not take."""
    for word in ("capacity", "width"):
        if getattr(choice, word) is not None:
            raise ValueError(
                f"--{word} is for {'lenet' if word == 'capacity' else 'a resnet18 or an mlp'}: leave it out"
            )
    if choice.dropout is not None:
        raise ValueError("--dropout is for lenet, an mlp or resnet18-dropout: leave it out")
    return shape


def _usual_dropout(choice: Choice) -> float:
    """That of the paper's ResNet (App. F), where draws are asked for."""
    return 0.0 if choice.dropout_draws is None else 0.2


def _members(choice: Choice) -> Estimator:
    said = {
        "--members": choice.members is not None,
        "--dropout-draws": choice.dropout_draws is not None,
        "--deep-kernel": choice.deep_kernel,
    }
    asked = [word for word, is_said in said.items() if is_said]
    if len(asked) > 1:
        raise ValueError(f"{' and '.join(asked)} are different estimates of uncertainty: give one of them")
    if choice.members is not None and (choice.latent or choice.cut):
        raise ValueError("--members have latent spaces of their own: leave out --latent and --cut")
    if choice.dropout_draws is not None and choice.dropout == 0:
        raise ValueError("--dropout-draws needs dropout, got --dropout 0: give a rate between 0 and 1")
    if choice.deep_kernel and choice.dropout:
        raise ValueError("--deep-kernel draws from its process: leave out --dropout")
    if choice.measure == "mutual-information" and not asked:
        raise ValueError(
            "--measure mutual-information needs several members: give --members, --dropout-draws or --deep-kernel"
        )
    if choice.members is not None and choice.members < 2:
        raise ValueError(f"--members must be a whole number of at least 2, got {choice.members}")
    if choice.dropout_draws is not None and choice.dropout_draws < 1:
        raise ValueError(f"--dropout-draws must be a whole number of at least 1, got {choice.dropout_draws}")
    if choice.members is not None:
        return EnsembleSpec(choice.members)
    if choice.dropout_draws is not None:
        return MCDropoutSpec(choice.dropout_draws)
    if choice.deep_kernel:
        # What is missing must be said before there is a folder.
        check_deep_kernel()
        return DeepKernelSpec()
    return SingleSpec()


def _place(choice: Choice) -> Place:
    if choice.latent and choice.cut:
        raise ValueError("--latent and --cut say the same in two ways: give one of them")
    return AtModule(choice.cut) if choice.cut else BeforeHead() if choice.latent else AtInput()


def _descent(choice: Choice, usual: str) -> Descent:
    if (choice.optimizer or usual) == "adam":
        return Adam(_or(choice.lr, 0.001), _SCHEDULES[choice.schedule or "constant"])
    return SGD(_or(choice.lr, 0.15), _SCHEDULES[choice.schedule or "triangle"])


def _or(said: Number | None, usual: Number) -> Number:
    return usual if said is None else said


def _average(words: str | None) -> Average:
    if words is None:
        return NoAverage()
    name, _, number = words.partition(":")
    kinds: dict[str, Callable[..., Average]] = {"ema": EMA, "swa": SWA}
    try:
        return kinds[name](float(number)) if number else kinds[name]()
    except (KeyError, ValueError) as problem:
        raise ValueError(f"--average must be ema, ema:.99, swa or swa:.5, got {words} ({problem})") from None
