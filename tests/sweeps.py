"""A sweep that takes seconds."""

from pathlib import Path

import numpy as np

WORDS = "--data own.npz --method udp --eps .05:.4 --alpha .02:.2:log --steps 1:2 --judge-eps .1 --width 8 --lr .03"


SHORT = f"sweep {WORDS} --epochs 2"


def write_data(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = np.arange(200) % 2
    np.savez("own.npz", x=(rng.normal(0, 0.3, (200, 2)) + labels[:, None]).astype(np.float32), y=labels)


def folders() -> list[Path]:
    return sorted(Path("runs/sweep").glob("trial-*"))
