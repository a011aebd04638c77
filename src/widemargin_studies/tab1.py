"""Table 1: robust accuracy and trade-off on CIFAR-10 and SVHN, without augmentation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from widemargin.training.plan import SGD, Triangle
from widemargin_studies import published
from widemargin_studies.beside import Group, cells_of, tell
from widemargin_studies.pixels import CIFAR, SVHN, ImageStudy
from widemargin_studies.pixels import Cell as C
from widemargin_studies.scales import CIFAR_SMALL, PAPER

TITLE = "Tab. 1: CIFAR-10 and SVHN without augmentation"
_UDPR_CIFAR = replace(CIFAR, plan=replace(CIFAR.plan, descent=SGD(0.14, Triangle())))
CIFAR_ROBUST = (
    C(CIFAR, "TRADES", 0.03, 0.001, 30),
    C(CIFAR, "PGD", 0.02, 0.001, 20),
    C(_UDPR_CIFAR, "UDPR", 0.05, 0.002, 25),
    C(CIFAR, "UDP-PGD", 0.06, 0.002, 30),
)
CIFAR_TRADEOFF = (
    C(CIFAR, "TRADES", 0.02, 0.001, 20),
    C(CIFAR, "PGD", 0.01, 0.001, 10),
    CIFAR_ROBUST[2],
    C(CIFAR, "UDP-PGD", 0.04, 0.001, 40),
)
_SVHN = {
    "TRADES": C(SVHN, "TRADES", 0.05, 0.002, 25),
    "UDPR": C(SVHN, "UDPR", 0.05, 0.002, 25),
    "UDP-PGD": C(SVHN, "UDP-PGD", 0.04, 0.002, 20),
}
SVHN_ROBUST = (_SVHN["TRADES"], C(SVHN, "PGD", 0.04, 0.002, 20), _SVHN["UDPR"], _SVHN["UDP-PGD"])
SVHN_TRADEOFF = (_SVHN["TRADES"], C(SVHN, "PGD", 0.02, 0.002, 10), _SVHN["UDPR"], _SVHN["UDP-PGD"])
GROUPS = (
    Group("CIFAR-10, best robust", CIFAR_ROBUST, published.TAB1_CIFAR_ROBUST, "robust accuracy"),
    Group("CIFAR-10, best trade-off", CIFAR_TRADEOFF, published.TAB1_CIFAR_TRADEOFF, "trade-off"),
    Group("SVHN, best robust", SVHN_ROBUST, published.TAB1_SVHN_ROBUST, "robust accuracy"),
    Group("SVHN, best trade-off", SVHN_TRADEOFF, published.TAB1_SVHN_TRADEOFF, "trade-off"),
)
_tell = partial(tell, GROUPS, "Do UDP methods trade accuracy for robustness better than PGD and TRADES?")
FULL, SMALL = (
    ImageStudy(TITLE, scale, cells_of(*GROUPS), scale.robustness(CIFAR.balls), _tell) for scale in (PAPER, CIFAR_SMALL)
)
