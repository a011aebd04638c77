"""Table 3: CIFAR-10 with shifted and mirrored images."""

from __future__ import annotations

from functools import partial

from widemargin_studies import published
from widemargin_studies.beside import Group, tell
from widemargin_studies.pixels import AUGMENTED, Cell, ImageStudy
from widemargin_studies.scales import CIFAR_SMALL, PAPER

TITLE = "Tab. 3: CIFAR-10 with augmentation"
CELLS = (
    Cell(AUGMENTED, "PGD", 0.03, 0.006, 10),
    Cell(AUGMENTED, "UDPR", 0.05, 0.01, 10),
    Cell(AUGMENTED, "UDP-PGD", 0.08, 0.01, 20),
)
GROUPS = (Group("CIFAR-10, augmented", CELLS, published.TAB3, "robust accuracy", with_clean=True),)
_tell = partial(tell, GROUPS, "Do UDP methods stay ahead of PGD when images are shifted and mirrored?")
FULL, SMALL = (
    ImageStudy(TITLE, scale, CELLS, scale.robustness(AUGMENTED.balls), _tell) for scale in (PAPER, CIFAR_SMALL)
)
