"""The words of `widemargin train`, and those that a sweep shares with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Generic, Literal, TypeVar

from rich.console import Console
from tyro.conf import FlagCreatePairsOff, arg

from widemargin.cli.stopping import StopAfter
from widemargin.cli.verbs.choices import NORM, SCHEDULE
from widemargin.cli.verbs.numbers import Number, Radius

# What is left out has a default that the text explains, often one that depends on the data.
_NUMBER, _INT = arg(metavar="NUMBER", help_behavior_hint=""), arg(metavar="INT", help_behavior_hint="")
_TEXT, _FLAG = arg(metavar="TEXT", help_behavior_hint=""), arg(help_behavior_hint="")
_FILE, _NAMES = arg(metavar="FILE", help_behavior_hint=""), arg(metavar="COLUMN,...", help_behavior_hint="")
_DECIMAL = arg(metavar=",|.", help_behavior_hint="")
_CHANNELS = arg(metavar="NUMBER...", help_behavior_hint="")
# A docstring of two lines would be broken where it is here, and not where the terminal ends.
_RADIUS = arg(
    metavar="NUMBER|auto",
    help_behavior_hint="",
    help="Radius of the ball in which points are moved; auto: half the median distance to the nearest training example "
    "of another class for udp and its kin, half the 25 % quantile for others (`widemargin separation` shows them).",
)
_DATA = arg(
    help="fashion-mnist, mnist, svhn, cifar-10, cifar-100, digits, a folder of images by class or of train/ val/ "
    "test/, .npz, .csv, .tsv or .parquet."
)
_METHOD = arg(
    help="standard, max-entropy, fgsm, r-fgsm, pgd, friendly, trades, trades-random-start, trades-cross-entropy, udp, "
    "udpr, udp-single-step, udp-trades, udp-trades-cross-entropy, udp-near or udp-projected; vat or udp-consistency, "
    "which also use rows without a label."
)
_MEASURE = arg(
    metavar="TEXT",
    help_behavior_hint="",
    help="Which uncertainty udp and its kin climb: entropy, mutual-information (needs several members), "
    "expected-entropy, variation-ratio or gap.  [entropy]",
)
Real = TypeVar("Real")
Integer = TypeVar("Integer")
Eps = TypeVar("Eps")


@dataclass(frozen=True)
class RunWords(Generic[Real, Integer, Eps]):
    """What `train` and `sweep` ask: a sweep has ranges of numbers where `train` has numbers."""

    data: Annotated[str, _DATA]
    method: Annotated[str, _METHOD]
    network: Annotated[str | None, _TEXT] = None
    """lenet, resnet18, resnet18-he, resnet18-dropout, mlp or my_file.py:MyNet (runs that file).  [the paper's]"""
    eps: Annotated[Eps | None, _RADIUS] = None
    alpha: Annotated[Real | None, _NUMBER] = None
    """Length of a step.  [with --eps auto a quarter of it]"""
    steps: Annotated[Integer | None, _INT] = None
    """How many steps; for udp and its kin the most that are drawn.  [with --eps auto 10]"""
    weight: Annotated[Real | None, _NUMBER] = None
    """Of the regulariser: udpr, trades, udp-trades and their other forms, max-entropy, vat, udp-consistency."""
    patience: Annotated[int | None, _INT] = None
    """Steps after crossing the boundary: friendly."""
    scale: Annotated[Number | None, _NUMBER] = None
    """How near is near, in units of the data: udp-near."""
    measure: Annotated[str | None, _MEASURE] = None
    norm: Annotated[str, NORM] = "linf"
    """Of the ball."""
    latent: Annotated[bool, _FLAG] = False
    """Perturb the latent space instead of the input: behind the last convolution, before an mlp's last layer."""
    cut: Annotated[str | None, _TEXT] = None
    """Perturb what the submodule of this name returns."""
    epochs: Annotated[int | None, _INT] = None
    """How often to go through the examples.  [100; for CIFAR and SVHN 60]"""
    batch: Annotated[int | None, _INT] = None
    """Examples in an update.  [256; for digits 32, for your own data a fortieth of it, 16 to 256]"""
    optimizer: Annotated[Literal["adam", "sgd"] | None, arg(metavar="adam|sgd", help_behavior_hint="")] = None
    """By default as published for the data: adam, for CIFAR and SVHN sgd (Nesterov .9, weight decay 5e-4)."""
    lr: Annotated[Real | None, _NUMBER] = None
    """Peak learning rate.  [adam .001, sgd .15]"""
    schedule: Annotated[str | None, SCHEDULE, _FLAG] = None
    """Of the learning rate.  [adam constant, sgd triangle]"""
    augment: Annotated[bool, _FLAG] = False
    """Shift images by up to 4 pixels and mirror every second one."""
    average: Annotated[str | None, _TEXT] = None
    """Predict with an average of the weights: ema, ema:.99, swa or swa:.5 (from half of the time on)."""
    mixed: Annotated[bool, _FLAG] = False
    """Leave every other batch clean."""
    fraction: Number = 1.0
    """Of the published training images."""
    capacity: Annotated[int | None, _INT] = None
    """Multiplies LeNet's filters."""
    width: Annotated[int | None, _INT] = None
    """Filters of a ResNet's first stage [64], features of an mlp's hidden layers [64]."""
    members: Annotated[int | None, _INT] = None
    """Train so many networks jointly from different first weights: their mean probability answers."""
    dropout: Annotated[Number | None, _NUMBER] = None
    """Probability of losing a feature: lenet, mlp, resnet18-dropout.  [0; .2 with --dropout-draws]"""
    dropout_draws: Annotated[int | None, _INT] = None
    """So many draws of the dropout masks are the members."""
    deep_kernel: Annotated[bool, _FLAG] = False
    """A Gaussian process on spectrally normalised features in place of the last layer; needs 'widemargin[gp]'."""
    label: str = "label"
    """Column of the labels in a table; an empty cell is no label."""
    decimal: Annotated[Literal[",", "."] | None, _DECIMAL] = None
    """Decimal mark in columns of a table that could be read with either, such as 1,234.  [each decides itself]"""
    validation: Annotated[str | None, _FILE] = None
    """File or folder like --data whose examples are for validation.  [a tenth of --data]"""
    test: Annotated[str | None, _FILE] = None
    """File or folder like --data whose examples are for the test.  [a fifth of --data]"""
    drop: Annotated[str | None, _NAMES] = None
    """Columns of a table that are left out, an id for instance."""
    only: Annotated[str | None, _NAMES] = None
    """Columns of a table that are used, and no others."""
    categories: Annotated[str | None, _NAMES] = None
    """Columns of numbers that stand for categories, as those of texts do; no perturbation changes a category."""
    missing: Literal["median", "refuse"] = "median"
    """Missing numbers (empty, NA, NaN, ?, null): the training rows' median and a feature that says so, or an error."""
    standardize: Annotated[bool, _FLAG, FlagCreatePairsOff] = False
    """Have --eps and --alpha in standard deviations of a table's columns.  [so for .csv, .tsv and .parquet]"""
    no_standardize: Annotated[bool, _FLAG, FlagCreatePairsOff] = False
    """Take the columns of a table as they are: --eps and --alpha are in their units."""
    eps_column: Annotated[tuple[str, ...], arg(metavar="COLUMN=RADIUS...", help_behavior_hint="")] = ()
    """Radii in the units of columns, as price=50 age=2: such a column is scaled so that there --eps is that radius."""
    fixed: Annotated[str | None, _NAMES] = None
    """Columns that no perturbation may change, in training, attacks, margins and certificates."""
    class_weights: Annotated[Literal["balanced"] | None, arg(metavar="balanced", help_behavior_hint="")] = None
    """Let all classes count the same in the loss, however many training rows they have.  [every row counts the same]"""
    mean: Annotated[tuple[Number, ...] | None, _CHANNELS] = None
    """Of an image's channels, or one for all: a network begins with (x - mean) / std, and --eps stays as it is.  [0]"""
    std: Annotated[tuple[Number, ...] | None, _CHANNELS] = None
    """The same: what it divides by.  [1]"""
    unlabelled: Annotated[int | None, _INT] = None
    """The number that means no label in an .npz file, -1 for instance.  [every number is a class; NaN is no label]"""
    size: Annotated[tuple[int, int] | None, arg(metavar="HEIGHT WIDTH", help_behavior_hint="")] = None
    """Height and width to which a folder's images are scaled."""
    box: Annotated[Literal["unit", "open"] | None, arg(metavar="unit|open", help_behavior_hint="")] = None
    """Keep perturbed points in [0, 1] or not.  [unit for images, open for tables and latent space]"""
    validate_every: int = 1
    """In epochs."""
    seed: int = 0
    """Decides the first weights, the order of examples and all that is drawn."""
    device: str = "cpu"
    """cpu or cuda."""


@dataclass(frozen=True)
class Train(RunWords[Number, int, Radius]):
    """Train a network, validate it as it goes, and keep its best and its last checkpoint.

    For example: widemargin train --data fashion-mnist --network lenet --method udp --eps .5 --alpha .025 --steps 20.
    The same command goes on with a run that was interrupted, whenever that was."""

    validate_eps: Annotated[Number | None, _NUMBER] = None
    """Radius of the PGD attack that chooses the best checkpoint.  [.1; for CIFAR and SVHN .03; for tables --eps]"""
    out: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Folder of the run.  [runs/ and a name that follows from all that decides a number]"""
    stop_after: StopAfter = None
    """Save and leave after this time, as 90s, 30m, 2h or 1d; `widemargin resume` goes on.  [at the end]"""
    tensorboard: Annotated[bool, _FLAG] = False
    """Write for TensorBoard too."""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.train import train

        train(self, console)
