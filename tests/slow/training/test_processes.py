import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from widemargin.files import read_tensors as read

WORDS = "--data digits --fraction .2 --method udpr --eps .2 --alpha .1 --steps 3 --weight 1 --augment"


def begun(out: Path, processes: int, epochs: int, *more: str) -> "subprocess.Popen[str]":
    command = ["-m", "widemargin.cli", "train", *WORDS.split(), "--epochs", str(epochs), "--out", str(out), *more]
    if processes > 1:
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--max-restarts", "3"]
        command = [
            *launcher,
            "--master-port",
            "0",
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            "localhost:0",
            *command,
        ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def once_saved(launcher: "subprocess.Popen[str]", out: Path) -> list[int]:
    """The processes that train, when there is a checkpoint."""
    while not (out / "checkpoint.safetensors").exists():
        time.sleep(0.2)
    return [int(child) for child in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()]


def losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def check_alike(one: Path, two: Path) -> None:
    first, second = (read(folder / "checkpoint.safetensors") for folder in (one, two))
    assert first[1]["update"] == second[1]["update"] > 10
    assert losses(two) == pytest.approx(losses(one), rel=1e-3)
    for name, value in first[0].items():
        torch.testing.assert_close(second[0][name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_torchrun_trains_what_one_process_does(tmp_path: Path) -> None:
    started = [begun(tmp_path / str(count), count, epochs=2) for count in (1, 2)]
    for process in started:
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0, said
    check_alike(tmp_path / "1", tmp_path / "2")


@pytest.mark.slow
def test_a_killed_worker_is_started_again_and_goes_on(tmp_path: Path) -> None:
    process = begun(tmp_path / "a", 2, epochs=30)
    children = once_saved(process, tmp_path / "a")
    os.kill(children[-1], signal.SIGKILL)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "going on after update" in said
    undisturbed = begun(tmp_path / "b", 2, epochs=30)
    undisturbed.communicate(timeout=300)
    assert losses(tmp_path / "a") == pytest.approx(losses(tmp_path / "b"), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all_at_the_same_update_and_saves_it(sent: signal.Signals, tmp_path: Path) -> None:
    launcher = begun(tmp_path / "a", 2, epochs=3000)
    children = once_saved(launcher, tmp_path / "a")
    for process in (launcher.pid, *children) if sent == signal.SIGINT else (launcher.pid,):
        # A terminal sends Ctrl-C to all of them.
        os.kill(process, sent)
    said, _ = launcher.communicate(timeout=120)
    stops = re.findall(r"stopped at update (\d+) of", said)
    assert len(set(stops)) == 1, said
    assert read(tmp_path / "a" / "checkpoint.safetensors")[1]["update"] == int(stops[0])


@pytest.mark.slow
def test_a_killed_torchrun_takes_its_processes_along(tmp_path: Path) -> None:
    launcher = begun(tmp_path / "a", 2, epochs=3000)
    children = once_saved(launcher, tmp_path / "a")
    launcher.kill()
    try:
        # Their common output ends when the last of them does.
        launcher.communicate(timeout=60)
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
