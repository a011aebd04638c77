"""An audit shared by several processes is that of one: with real processes, started by torchrun."""

import json
import multiprocessing
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from widemargin import OPEN, Linf, Single, at_input
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.runner import audit
from widemargin.auditing.shares import patient
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Dataset, Origin
from widemargin.measure.diagnostics import DIAGNOSES
from widemargin.perturb.apgd import APGD
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import Ball, Box, Norm
from widemargin.perturb.fmn import FMN
from widemargin.perturb.square import Square
from widemargin.training.processes import ALONE, Processes, Together

PATIENCE = 2


"""Of torch, in seconds."""


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


class Waves(nn.Module):
    def forward(self, points: Tensor) -> Tensor:
        return torch.stack([points[:, 0] + (3 * points[:, 1]).sin(), -points[:, 0]], 1)


@dataclass(frozen=True)
class Few:
    def __call__(self, ball: Ball, classes: int, rows_at_once: int = 0) -> tuple[Attack, ...]:
        return (APGD(ball, steps=5), Square(ball, queries=10))


@dataclass(frozen=True)
class FewShortest:
    def __call__(
        self, norm: Norm, box: Box, classes: int, rows_at_once: int = 0, starts: int = 1
    ) -> tuple[Attack, ...]:
        return (FMN(norm, box, steps=10),)


def audited(folder: Path, rank: int, count: int) -> None:
    """With fewer steps, and with less patience of torch's own than the last process takes to come."""
    torch.set_num_threads(1)
    points = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    labels = Waves()(points).argmax(1)
    examples = Dataset(points, labels, ("a", "b"), Origin("memory", "digest"))
    target = AuditTarget(Single(at_input(Waves())), "waves", "waves", examples, "points")
    balls, modes = (Linf(0.1, OPEN), Linf(0.3, OPEN)), DIAGNOSES[1:2]
    config = AuditConfig(balls, points=10, chunk=3, standard=Few(), shortest=FewShortest(), diagnoses=modes)
    processes: Processes = ALONE
    if count > 1:
        meeting = f"file://{folder}.meeting"
        dist.init_process_group("gloo", meeting, timedelta(seconds=PATIENCE), rank=rank, world_size=count)
        processes = Together(rank, count)
    shares = patient(processes)
    time.sleep(2 * PATIENCE * rank)
    found = audit(target, config, folder, processes=shares)
    assert (found is None) == (rank > 0)
    if found is not None:
        (folder / "points.json").write_text(json.dumps(found.per_point()))


def test_two_processes_audit_what_one_does_however_long_one_takes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["widemargin.auditing.runner", "torch._dynamo"])
    shares = [(tmp_path / str(count), rank, count) for count in (1, 2) for rank in range(count)]
    started = [context.Process(target=audited, args=share) for share in shares]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
        assert process.exitcode == 0
    one, two = (read(tmp_path / str(count), "points.json") for count in (1, 2))
    assert len(one) == 10
    assert one == two
