"""Several processes train what one would: with real processes, started by torchrun."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import interrupted
from widemargin import (
    LMS5,
    Adam,
    CropFlip,
    Epochs,
    Linf,
    Method,
    Nearness,
    Plan,
    Rng,
    Single,
    Training,
    Updates,
    Widths,
    at_input,
    carry_on,
    perturbed_loss,
    standard,
    udpr,
)
from widemargin.files import read_tensors as read
from widemargin.networks.named import ResNetShape
from widemargin.train.processes import Together, own_share, with_whole_batch_norm

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


def losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def check_alike(one: Path, two: Path) -> None:
    first, second = (read(folder / "checkpoint.safetensors") for folder in (one, two))
    assert first[1]["update"] == second[1]["update"] > 10
    assert losses(two) == pytest.approx(losses(one), rel=1e-3)
    for name, value in first[0].items():
        torch.testing.assert_close(second[0][name], value, rtol=1e-3, atol=1e-4)


def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["widemargin.conduct.fit", "sklearn.datasets", "torch._dynamo"])
    plan = Plan(Epochs(2), Adam(0.003), batch=32, augment=CropFlip(1), mixed=True)
    trial = replace(interrupted.TRIAL, plan=plan, method=udpr(Linf(0.2), 0.1, 3, weight=1.0))
    shares = [(tmp_path / str(count), rank, count, trial) for count in (1, 2) for rank in range(count)]
    started = [context.Process(target=interrupted.run_shared, args=share) for share in shares]
    for process in started:
        process.start()
    for process in started:
        process.join(60)
        assert process.exitcode == 0
    check_alike(tmp_path / "1", tmp_path / "2")


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
    while not (tmp_path / "a" / "checkpoint.safetensors").exists():
        time.sleep(0.2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "going on after update" in said
    undisturbed = begun(tmp_path / "b", 2, epochs=30)
    undisturbed.communicate(timeout=300)
    assert losses(tmp_path / "a") == pytest.approx(losses(tmp_path / "b"), rel=1e-6)


def test_shares_of_a_draw_are_the_whole_draw() -> None:
    like, rng = torch.empty(6, 3), Rng.seeded(3)
    whole = Rng.seeded(3).uniform(torch.empty(12, 3))
    assert torch.equal(rng.for_share(1, 2).uniform(like), whole[6:])
    counts = Rng.seeded(3).integers(1, 9, 12)
    assert torch.equal(Rng.seeded(3).for_share(0, 2).integers(1, 9, 6), counts[:6])
    with pytest.raises(ValueError, match=r"^several processes train one network, got 2 abreast$"):
        Rng.seeded(1, 2).for_share(0, 2)


def test_what_cannot_be_shared_is_refused() -> None:
    assert own_share(torch.arange(6), Together(1, 2)).tolist() == [3, 4, 5]
    with pytest.raises(ValueError, match=r"^a batch must divide among 2 processes, got 5 examples"):
        own_share(torch.arange(5), Together(0, 2))
    plan, network = Plan(Updates(1), Adam(0.1)), Single(at_input(Widths((2, 2)).build(Rng.seeded(0).generators[0])))
    weighed = Method(standard().perturb, perturbed_loss, Nearness(1.0))
    with pytest.raises(ValueError, match="cannot weigh samples against each other"):
        next(carry_on(Training.begin(network, plan), LMS5().draw(), weighed, plan, (0,), Together(0, 2)))


def test_whole_batch_norm_keeps_every_tensor() -> None:
    network = Single(at_input(ResNetShape(width=8).build(torch.Generator().manual_seed(0))))
    before = dict(network.state_dict(keep_vars=True))
    step = with_whole_batch_norm(nn.Sequential(network))
    after = {name.removeprefix("0."): tensor for name, tensor in step.state_dict(keep_vars=True).items()}
    assert any(isinstance(module, nn.SyncBatchNorm) for module in step.modules())
    assert not any(type(module) is nn.BatchNorm2d for module in step.modules())
    assert list(after) == list(before)
    for name, tensor in before.items():
        assert after[name].data_ptr() == tensor.data_ptr()
