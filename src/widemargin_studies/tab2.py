"""Table 2: clean and robust accuracy and their trade-off on Fashion-MNIST."""

from __future__ import annotations

from functools import partial

from widemargin_studies import published
from widemargin_studies.beside import Group, cells_of, tell
from widemargin_studies.pixels import FASHION, Cell, ImageStudy
from widemargin_studies.scales import FASHION_SMALL, ONE_SEED, PAPER

TITLE = "Tab. 2: Fashion-MNIST"
_PGD = Cell(FASHION, "PGD", 0.2, 0.015, 20)
_TRADES = Cell(FASHION, "TRADES", 0.2, 0.015, 20)
_UDPR = Cell(FASHION, "UDPR", 0.5, 0.025, 20)
_STANDARD = Cell(FASHION, "standard")
ROBUST = (_STANDARD, _PGD, _TRADES, _UDPR, Cell(FASHION, "UDP-PGD", 0.5, 0.025, 20))
TRADEOFF = (_STANDARD, _PGD, _TRADES, _UDPR, Cell(FASHION, "UDP-PGD", 0.3, 0.015, 25))
GROUPS = (
    Group("Fashion-MNIST", ROBUST, published.TAB2_ROBUST, "robust accuracy", with_clean=True),
    Group("Fashion-MNIST", TRADEOFF, published.TAB2_TRADEOFF, "trade-off", with_clean=True),
)
_tell = partial(tell, GROUPS, "Do UDP methods trade accuracy for robustness better than PGD and TRADES?")
FULL, ONE, SMALL = (
    ImageStudy(TITLE, scale, cells_of(*GROUPS), scale.robustness(FASHION.balls), _tell)
    for scale in (PAPER, ONE_SEED, FASHION_SMALL)
)
