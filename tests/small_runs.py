"""Runs that take seconds."""

import torch
from torch import nn

from widemargin import Adam, Epochs, Linf, Plan, udp
from widemargin.data.images import ImageSet
from widemargin.networks.named import LeNetSpec
from widemargin.perturb.pgd import pgd_search
from widemargin.rng import Rng
from widemargin.runs.folder import RunFolder
from widemargin.runs.run import Run, Validation

DIGITS = ImageSet("digits", fraction=0.2)


PLAN = Plan(Epochs(4), Adam(0.003), batch=32)


TRIAL = Run(
    DIGITS, LeNetSpec(side=8), udp(Linf(0.1), 0.03, 2), PLAN, validation=Validation(2, pgd_search(Linf(0.1), 0.05, 2))
)


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def files(folder: RunFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.path.iterdir()}


def net() -> nn.Module:
    with Rng.seeded(1).as_global():
        return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
