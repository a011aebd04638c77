"""A run in a process of its own, to be killed, or in several."""

from pathlib import Path

import torch
import torch.distributed as dist

from widemargin.data.images import ImageSet
from widemargin.networks.named import LeNetSpec
from widemargin.perturb.balls import Linf
from widemargin.perturb.pgd import pgd_search
from widemargin.recipes import udp
from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import prepare
from widemargin.runs.run import Run, Validation
from widemargin.runs.runner import Pace, run_training
from widemargin.training.plan import EMA, Adam, Cosine, Epochs, Plan
from widemargin.training.processes import ALONE, Together

TRIAL = Run(
    ImageSet("digits", fraction=0.2),
    LeNetSpec(side=8),
    udp(Linf(0.2), 0.05, 3),
    Plan(Epochs(40), Adam(0.003, Cosine()), batch=32, average=EMA(0.9)),
    validation=Validation(2, pgd_search(Linf(0.1), 0.05, 2)),
)


def run(folder: Path, trial: Run = TRIAL) -> None:
    torch.set_num_threads(1)
    # Every epoch takes less than a second here, and a checkpoint in its middle must be met too.
    run_training(prepare(trial), RunFolder(folder), pace=Pace(shortest=0.0, longest=0.01))


def run_shared(folder: Path, rank: int, count: int, trial: Run) -> None:
    torch.set_num_threads(1)
    if count == 1:
        run_training(prepare(trial), RunFolder(folder), processes=ALONE)
        return
    dist.init_process_group("gloo", init_method=f"file://{folder}.meeting", rank=rank, world_size=count)
    run_training(prepare(trial), RunFolder(folder), processes=Together(rank, count))
    dist.destroy_process_group()
