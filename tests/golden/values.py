"""What every recipe did on a tiny fixed network when the golden file was written.

Write it anew after a change that is meant to move numbers:  PYTHONPATH=tests .venv/bin/python -m golden.values
"""

import json
from pathlib import Path

import torch
from torch import Tensor

from cases import BALLS, WITH_BALL, WITHOUT_BALL
from widemargin import Method, Single, at_input
from widemargin.networks.mlp import MLP
from widemargin.rng import Rng

FILE = Path(__file__).with_name("values.json")
METHODS: dict[str, Method] = {name: make() for name, make in WITHOUT_BALL.items()} | {
    f"{name} {ball!r}": make(ball) for name, make in WITH_BALL.items() for ball in (BALLS[0], BALLS[3], BALLS[5])
}


def _waves(*shape: int) -> Tensor:
    """Numbers in [-1, 1] that need no generator."""
    return (torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float64) ** 1.3).sin().view(shape)


def computed(method: Method) -> dict[str, object]:
    network = Single(at_input(MLP(16, 6, 3).double()))
    for parameter in network.parameters():
        parameter.data = _waves(*parameter.shape)
    points, labels = 0.45 + 0.45 * _waves(4, 16), torch.tensor([0, 1, 2, 0])
    moved = method.perturb(network, points, labels, Rng.seeded(0))
    return {"loss": method.loss_at(network, points, labels, moved).item(), "delta": moved.delta.tolist()}


if __name__ == "__main__":
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(computed(method))}" for name, method in METHODS.items())
    FILE.write_text(f"{{\n{lines}\n}}\n")
