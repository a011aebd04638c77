"""The words of `widemargin train`, and those that a sweep shares with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from rich.console import Console
from tyro.conf import arg

from widemargin.cli.stopping import StopAfter
from widemargin.cli.verbs.choices import NORM, SCHEDULE
from widemargin.cli.verbs.data import Parts, TableColumns
from widemargin.cli.verbs.numbers import Number, Radius

# What is left out has a default that the text explains, often one that depends on the data.
_NUMBER, _INT = arg(metavar="NUMBER", help_behavior_hint=""), arg(metavar="INT", help_behavior_hint="")
_TEXT, _FLAG = arg(metavar="TEXT", help_behavior_hint=""), arg(help_behavior_hint="")
# A docstring of two lines would be broken where it is here, and not where the terminal ends.
_RADIUS = arg(
    metavar="NUMBER|auto",
    help_behavior_hint="",
    help="Radius of the ball in which points are perturbed; auto: half the median distance to the nearest training "
    "example of another class for the udp methods, half the 25 % quantile for others (`widemargin separation` shows "
    "them).",
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
_NETWORK = arg(
    metavar="TEXT",
    help_behavior_hint="",
    help="lenet, resnet18, resnet18-he, resnet18-dropout, mlp or my_file.py:MyNet (runs that file). (default: the "
    "paper's for published images; for your own data resnet18 for images, mlp for tables)",
)
_CLASS_WEIGHTS = arg(
    metavar="balanced",
    help_behavior_hint="",
    help="Let all classes count the same in the loss, however many training rows they have. (default: every row counts "
    "the same)",
)
_MEAN = arg(
    metavar="NUMBER...",
    help_behavior_hint="",
    help="Mean of each channel of an image, or one for all: the network begins with (x - mean) / std, and --eps stays "
    "in the units of the pixels. (default: 0)",
)
_STD = arg(
    metavar="NUMBER...",
    help_behavior_hint="",
    help="Standard deviation of each channel, or one for all; see --mean. (default: 1)",
)
_VALIDATE_EPS = arg(
    metavar="NUMBER",
    help_behavior_hint="",
    help="Radius of the PGD attack that chooses the best checkpoint. (default: .1; for CIFAR and SVHN .03; for tables "
    "--eps)",
)
_MEASURE = arg(
    metavar="TEXT",
    help_behavior_hint="",
    help="Uncertainty that the udp methods maximise: entropy, mutual-information (needs several members), "
    "expected-entropy, variation-ratio (1 - max softmax probability) or gap (top-2 log-probability margin). "
    "(default: entropy)",
)


@dataclass(frozen=True)
class WhatToTrain:
    data: Annotated[str, _DATA]
    method: Annotated[str, _METHOD]
    network: Annotated[str | None, _NETWORK] = None
    label: str = "label"
    """Column of the labels in a table; an empty cell is no label."""
    epochs: Annotated[int | None, _INT] = None
    """Passes over the training examples. (default: 100; for CIFAR and SVHN 60)"""
    norm: Annotated[str, NORM] = "linf"
    """Norm of the ball in which points are perturbed."""


@dataclass(frozen=True)
class TrainNumbers:
    eps: Annotated[Radius | None, _RADIUS] = None
    alpha: Annotated[Number | None, _NUMBER] = None
    """Step size. (default: a quarter of --eps; r-fgsm 1.25 of it)"""
    steps: Annotated[int | None, _INT] = None
    """Number of steps; the udp methods draw from 1 to this many. (default: 10)"""
    weight: Annotated[Number | None, _NUMBER] = None
    """Weight of the regulariser: udpr, trades, udp-trades and their other forms, max-entropy, vat, udp-consistency."""
    lr: Annotated[Number | None, _NUMBER] = None
    """Peak learning rate. (default: adam .001, sgd .15)"""
    out: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Folder of the run. (default: runs/ and a name that follows from all that decides a number)"""


@dataclass(frozen=True)
class TrainingData:
    title: ClassVar[str] = "data"

    fraction: Number = 1.0
    """Fraction of the published training images to use."""
    augment: Annotated[bool, _FLAG] = False
    """Shift images by up to 4 pixels and mirror every second one."""
    class_weights: Annotated[Literal["balanced"] | None, _CLASS_WEIGHTS] = None


@dataclass(frozen=True)
class MethodDetails:
    """More on how points are perturbed."""

    title: ClassVar[str] = "method"

    patience: Annotated[int | None, _INT] = None
    """Steps to take after crossing the boundary: friendly."""
    scale: Annotated[Number | None, _NUMBER] = None
    """Distance scale of the sample weights, in units of the data: udp-near."""
    measure: Annotated[str | None, _MEASURE] = None
    latent: Annotated[bool, _FLAG] = False
    """Perturb the latent space instead of the input: behind the last convolution, before an mlp's last layer."""
    cut: Annotated[str | None, _TEXT] = None
    """Perturb what the submodule of this name returns."""
    mixed: Annotated[bool, _FLAG] = False
    """Leave every other batch clean."""
    box: Annotated[Literal["unit", "open"] | None, arg(metavar="unit|open", help_behavior_hint="")] = None
    """unit keeps perturbed points in [0, 1], open does not. (default: unit for images, open otherwise)"""


@dataclass(frozen=True)
class NetworkDetails:
    """The size of a network, and several instead of one."""

    title: ClassVar[str] = "network"

    width: Annotated[int | None, _INT] = None
    """Filters of a ResNet's first stage, or features of an mlp's hidden layers. (default: 64)"""
    capacity: Annotated[int | None, _INT] = None
    """Multiplies LeNet's filters."""
    members: Annotated[int | None, _INT] = None
    """Train so many networks jointly from different initial weights; their predictions are averaged."""
    dropout: Annotated[Number | None, _NUMBER] = None
    """Dropout probability: lenet, mlp, resnet18-dropout. (default: 0; .2 with --dropout-draws)"""
    dropout_draws: Annotated[int | None, _INT] = None
    """Number of dropout masks drawn as members (MC dropout); their predictions are averaged."""
    deep_kernel: Annotated[bool, _FLAG] = False
    """A Gaussian process on spectrally normalised features in place of the last layer; needs 'widemargin[gp]'."""
    mean: Annotated[tuple[Number, ...] | None, _MEAN] = None
    std: Annotated[tuple[Number, ...] | None, _STD] = None


@dataclass(frozen=True)
class Optimization:
    """How the weights are updated, and the seed."""

    title: ClassVar[str] = "optimisation"

    batch: Annotated[int | None, _INT] = None
    """Batch size. (default: 256; for digits 32, for your own data a fortieth of it, 16 to 256)"""
    optimizer: Annotated[Literal["adam", "sgd"] | None, arg(metavar="adam|sgd", help_behavior_hint="")] = None
    """sgd has Nesterov momentum .9 and weight decay 5e-4. (default: adam; for CIFAR and SVHN sgd)"""
    schedule: Annotated[str | None, SCHEDULE, _FLAG] = None
    """Learning rate schedule. (default: adam constant, sgd triangle)"""
    average: Annotated[str | None, _TEXT] = None
    """Predict with an average of the weights: ema, ema:.99, swa or swa:.5 (from half of the epochs on)."""
    seed: int = 0
    """Decides the initial weights, the order of examples and all that is drawn."""
    device: str = "cpu"
    """cpu or cuda."""


@dataclass(frozen=True)
class Validating:
    """What is measured and written during training."""

    title: ClassVar[str] = "validation and output"

    validate_every: int = 1
    """Epochs from one validation to the next."""


@dataclass(frozen=True)
class WhileTraining:
    title: ClassVar[str] = "validation and output"

    validate_eps: Annotated[Number | None, _VALIDATE_EPS] = None
    stop_after: StopAfter = None
    """Save and stop after this time, as 90s, 30m, 2h or 1d; `widemargin resume` continues. (default: at the end)"""
    tensorboard: Annotated[bool, _FLAG] = False
    """Write for TensorBoard too."""


# Bases are read from the last: so do options in the help.
@dataclass(frozen=True)
class Train(
    WhileTraining,
    Validating,
    Optimization,
    NetworkDetails,
    MethodDetails,
    TableColumns,
    TrainingData,
    Parts,
    TrainNumbers,
    WhatToTrain,
):
    """Train a network, validate it during training, and keep its best and its last checkpoint.

    docs/choosing.md says which method and which radius to take.  The same command resumes a run that was interrupted,
    whenever that was.  For example:

    widemargin train --data fashion-mnist --network lenet --method udp --eps .5 --alpha .025 --steps 20"""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.train import train

        train(self, console)
