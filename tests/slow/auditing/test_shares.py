import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

"""Of torch, in seconds."""


# Without matrix products, whose rounding depends on how many rows are computed at once.
NETWORK = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.tensor([[1.0, 0.5], [-1.0, 0.5], [0.0, -1.0]]))

    def forward(self, points):
        return ((points + 0.1 * (5 * points).sin())[:, None] * self.weight).sum(-1)
"""


WORDS = "audit net.py:Net --data table.csv --eps .1 .3 --norm l2 --points 9 --seed 1"


LAUNCHER = "-m torch.distributed.run --nproc-per-node 2 --master-port 0 --rdzv-backend c10d --rdzv-endpoint localhost:0"


def begun(folder: Path, out: str, launcher: str = "") -> "subprocess.Popen[str]":
    command = [sys.executable, *launcher.split(), "-m", "widemargin.cli", *WORDS.split(), "--out", out]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


@pytest.mark.slow
def test_torchrun_audits_what_one_process_does(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(90, 2))
    labels = (points @ [[1.0, -1.0, 0.0], [0.5, 0.5, -1.0]]).argmax(1)
    rows = "".join(f"{x:.4f},{y:.4f},{'abc'[label]}\n" for (x, y), label in zip(points, labels, strict=True))
    (tmp_path / "table.csv").write_text("x,y,label\n" + rows)
    (tmp_path / "net.py").write_text(NETWORK)
    started = [begun(tmp_path, "one"), begun(tmp_path, "two", LAUNCHER)]
    for process in started:
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
        assert said.count("audit-l2.json") == 1, "only the first process tells"
    one, two = (read(tmp_path / out, "points-l2.json")["points"] for out in ("one", "two"))
    assert len(one) == 9
    assert sorted(one, key=lambda point: point["row"]) == sorted(two, key=lambda point: point["row"])
    summaries = [{**read(tmp_path / out, "audit-l2.json"), "seconds": 0, "checksum": ""} for out in ("one", "two")]
    assert summaries[0] == summaries[1]
    chunks = [len(list((tmp_path / out).rglob("0*.safetensors"))) for out in ("one", "two")]
    assert chunks == [1, 2], "there was something to share"
