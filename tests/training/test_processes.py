"""Several processes train what one would: with real processes, started by torchrun."""

import json
import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import interrupted
from widemargin import (
    L2,
    OPEN,
    SGD,
    Adam,
    Dataset,
    Epochs,
    Linf,
    Plan,
    Single,
    Updates,
    at_input,
    r_fgsm,
    udp_near,
    udp_projected,
    udpr,
)
from widemargin.data.augment import CropFlip
from widemargin.data.toy import LMS5
from widemargin.files import read_tensors as read
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.named import ResNetSpec
from widemargin.recipes import standard
from widemargin.shapes import Encoded, MemberLogits, Points
from widemargin.training.loop import Training, continue_training
from widemargin.training.processes import ALONE, Processes, Shard, Together, local_shard, with_whole_batch_norm
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.replicas import Replicas


def losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def check_alike(one: Path, two: Path) -> None:
    first, second = (read(folder / "checkpoint.safetensors") for folder in (one, two))
    assert first[1]["update"] == second[1]["update"] > 10
    assert losses(two) == pytest.approx(losses(one), rel=1e-3)
    for name, value in first[0].items():
        torch.testing.assert_close(second[0][name], value, rtol=1e-3, atol=1e-4)


class Penalised(Network):
    replicas = 1

    def __init__(self) -> None:
        super().__init__()
        self.head = MLPSpec((2, 8, 2)).build(torch.Generator().manual_seed(0)).double()

    def encode(self, inputs: Points) -> Encoded:
        return inputs

    def logits(self, encoded: Encoded) -> MemberLogits:
        return self.head(encoded).unsqueeze(0)  # type: ignore[no-any-return]

    def penalty(self) -> Tensor:
        return 0.01 * torch.stack([parameter.square().sum() for parameter in self.parameters()]).sum()


POINTS = Dataset(LMS5(count=24).draw().points.double(), LMS5(count=24).draw().labels)


# Of the batches of 7, 7, 7 and 3 rows none divides, and the last has fewer rows than processes need.
PLAN = Plan(Updates(8), SGD(0.1), batch=7)


METHODS = [
    (udpr(Linf(0.3, OPEN), 0.1, 4, weight=0.5), PLAN),
    (r_fgsm(L2(0.3, OPEN), 0.2), replace(PLAN, mixed=True)),
    (udp_near(L2(0.3, OPEN), 0.1, 4, scale=0.1), PLAN),
    (udp_projected(L2(0.3, OPEN), 3), PLAN),
]


def trained(processes: Processes) -> list[tuple[list[float], list[Tensor]]]:
    """The losses and the last weights of every method."""
    found = []
    for method, plan in METHODS:
        network = Penalised()
        records = list(continue_training(Training.begin(network, plan), POINTS, method, plan, (3,), processes))
        found.append(([record.loss for record in records], [value.detach() for value in network.parameters()]))
    return found


def train_shared(meeting: Path, rank: int, count: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=count)
    torch.save(trained(Together(rank, count)), f"{meeting}-{rank}")
    dist.destroy_process_group()


def in_processes(function: Callable[..., None], shares: list[tuple[Any, ...]]) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["widemargin.runs.fit", "sklearn.datasets", "torch._dynamo"])
    started = [context.Process(target=function, args=share) for share in shares]
    for process in started:
        process.start()
    for process in started:
        process.join(200)
        assert process.exitcode == 0


def test_unequal_shares_train_what_one_process_does_whatever_weighs_the_samples(tmp_path: Path) -> None:
    alone = trained(ALONE)
    in_processes(train_shared, [(tmp_path / str(count), rank, count) for count in (2, 3) for rank in range(count)])
    for share in ("2-0", "2-1", "3-0", "3-1", "3-2"):
        for (losses, weights), (found, values) in zip(alone, torch.load(tmp_path / share), strict=True):
            assert found == pytest.approx(losses, abs=1e-9)
            torch.testing.assert_close(values, weights, rtol=0, atol=1e-9)


def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    plan = Plan(Epochs(2), Adam(0.003), batch=32, augment=CropFlip(1), mixed=True)
    trial = replace(interrupted.TRIAL, plan=plan, method=udpr(Linf(0.2), 0.1, 3, weight=1.0))
    in_processes(
        interrupted.run_shared,
        [(tmp_path / str(count), rank, count, trial) for count in (1, 2) for rank in range(count)],
    )
    check_alike(tmp_path / "1", tmp_path / "2")


@pytest.mark.parametrize(("rows", "count"), [(6, 2), (7, 2), (7, 3), (33, 2), (256, 3)])
def test_shares_are_the_whole_batch_and_their_weights_average_to_1(rows: int, count: int) -> None:
    shards = [local_shard(rows, Together(rank, count)) for rank in range(count)]
    assert torch.equal(torch.cat([shard.of(torch.arange(rows)) for shard in shards]), torch.arange(rows))
    assert max(len(shard.rows) for shard in shards) - min(len(shard.rows) for shard in shards) <= 1
    assert sum(shard.weight for shard in shards) == pytest.approx(count)


def test_a_batch_too_small_for_its_processes_is_done_whole_by_everyone() -> None:
    assert local_shard(5, Together(2, 3)) == local_shard(5, ALONE) == Shard(range(5), 5)


def test_several_processes_train_one_network() -> None:
    plan, networks = Plan(Updates(1), Adam(0.1)), Replicas([MLPSpec((2, 2)).build(torch.Generator()) for _ in range(2)])
    with pytest.raises(ValueError, match=r"^several processes train one network, got 2 replicas: train them in one$"):
        next(continue_training(Training.begin(networks, plan), LMS5().draw(), standard(), plan, (0, 1), Together(0, 2)))


def test_whole_batch_norm_keeps_every_tensor() -> None:
    network = Single(at_input(ResNetSpec(width=8).build(torch.Generator().manual_seed(0))))
    before = dict(network.state_dict(keep_vars=True))
    step = with_whole_batch_norm(nn.Sequential(network))
    after = {name.removeprefix("0."): tensor for name, tensor in step.state_dict(keep_vars=True).items()}
    assert any(isinstance(module, nn.SyncBatchNorm) for module in step.modules())
    assert not any(type(module) is nn.BatchNorm2d for module in step.modules())
    assert list(after) == list(before)
    for name, tensor in before.items():
        assert after[name].data_ptr() == tensor.data_ptr()
