"""The names at the top and where they are defined: the one list from which `__init__.py` finds them."""

from . import (
    auditing,
    data,
    io,
    measure,
    method,
    networks,
    perturb,
    recipes,
    report,
    rng,
    runs,
    testing,
    training,
    uncertainty,
)
from .api import accuracy, attack, audit, calibration, certify, margins, predict, robust_accuracy, separation, train
from .data.dataset import Dataset
from .io.load import load
from .method import Method
from .perturb.balls import L1, L2, OPEN, Box, Linf
from .recipes import (
    fgsm,
    friendly,
    max_entropy,
    pgd,
    r_fgsm,
    standard,
    trades,
    trades_cross_entropy,
    trades_random_start,
    udp,
    udp_consistency,
    udp_near,
    udp_projected,
    udp_single_step,
    udp_trades,
    udp_trades_cross_entropy,
    udpr,
    vat,
)
from .runs.fit import fit
from .sklearn import WideMarginClassifier
from .training.plan import SGD, Adam, Cosine, Epochs, Plan, Updates
from .uncertainty.cuts import at_input
from .uncertainty.deep_kernel import DeepKernel
from .uncertainty.dropout import MCDropout
from .uncertainty.ensemble import Ensemble
from .uncertainty.laplace import laplace
from .uncertainty.single import Single

__version__: str

__all__ = [
    "L1",
    "L2",
    "OPEN",
    "SGD",
    "Adam",
    "Box",
    "Cosine",
    "Dataset",
    "DeepKernel",
    "Ensemble",
    "Epochs",
    "Linf",
    "MCDropout",
    "Method",
    "Plan",
    "Single",
    "Updates",
    "WideMarginClassifier",
    "accuracy",
    "at_input",
    "attack",
    "audit",
    "auditing",
    "calibration",
    "certify",
    "data",
    "fgsm",
    "fit",
    "friendly",
    "io",
    "laplace",
    "load",
    "margins",
    "max_entropy",
    "measure",
    "method",
    "networks",
    "perturb",
    "pgd",
    "predict",
    "r_fgsm",
    "recipes",
    "report",
    "rng",
    "robust_accuracy",
    "runs",
    "separation",
    "standard",
    "testing",
    "trades",
    "trades_cross_entropy",
    "trades_random_start",
    "train",
    "training",
    "udp",
    "udp_consistency",
    "udp_near",
    "udp_projected",
    "udp_single_step",
    "udp_trades",
    "udp_trades_cross_entropy",
    "udpr",
    "uncertainty",
    "vat",
]
