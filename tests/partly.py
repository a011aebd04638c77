"""A table of two classes, most of whose rows have no label."""

from pathlib import Path

import numpy as np

ROWS, KNOWN = 200, 60


RNG = np.random.default_rng(0)


CLASSES = np.arange(ROWS) % 2


POINTS = (RNG.normal(size=(ROWS, 2)) * 0.3 + np.where(CLASSES, 1, -1)[:, None]).astype(np.float32)


VAT = "--method vat --eps .3 --weight 1 --norm l2"


UDP = "--method udp-consistency --eps .3 --alpha .1 --steps 3 --weight 1 --norm l2"


def write_csv(points: np.ndarray = POINTS) -> None:
    cells = [
        f"{a},{b},{'ab'[c] if i < KNOWN else ''}" for i, ((a, b), c) in enumerate(zip(points, CLASSES, strict=True))
    ]
    Path("own.csv").write_text("\n".join(["u,v,label", *cells]) + "\n")
