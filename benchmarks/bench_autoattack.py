"""AutoAttack: ours and pyautoattack on the same points of the same network, and the points on which they disagree.

python benchmarks/bench_autoattack.py                             a LeNet trained for a minute, 60 points
python benchmarks/bench_autoattack.py RUN [RUN...] --points 1000 --balls linf-.05 linf-.1 l2-1.5
                                                                  LeNets of `widemargin train`, by their folders
python benchmarks/bench_autoattack.py --resnet                    a thin PreAct ResNet-18 on CIFAR-10 besides
"""

from __future__ import annotations

import argparse
import copy
import logging
import time
from pathlib import Path

import torch
from pyautoattack import AutoAttack
from safetensors.torch import load_file
from timing import header
from torch import Tensor, nn

import widemargin as wm
from widemargin.data.dataset import Examples
from widemargin.data.images import ImageSet
from widemargin.networks.lenet import LeNet
from widemargin.networks.resnet import PreActResNet18
from widemargin.perturb.balls import Ball
from widemargin.perturb.frozen import frozen
from widemargin.perturb.suites import standard
from widemargin.rng import RowRng
from widemargin.runs.prepare import channels_last
from widemargin.uncertainty.predictive import is_correct

STAGES = ("apgd-ce", "apgd-t", "fab-t", "square")
Costs = dict[str, tuple[float, int]]
LINF_005, LINF_01, L2_15 = wm.Linf(0.05), wm.Linf(0.1), wm.L2(1.5)
BALLS: dict[str, Ball] = {"linf-.05": LINF_005, "linf-.1": LINF_01, "l2-1.5": L2_15}


def outside(network: wm.uncertainty.Network) -> nn.Module:
    """What pyautoattack is given: the same layers one after the other, none of our quicker ways of computing them.

    Even so a LeNet pools before it rectifies and a ResNet rectifies in place, which few would write.
    """
    module: nn.Module = copy.deepcopy(network.head).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return torch.fx.symbolic_trace(module)


def ours(network: wm.uncertainty.Network, ball: Ball, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Costs]:
    """Who stands at the end; of each attack, the seconds and how many it leaves."""
    costs: Costs = {}
    with frozen(network), torch.no_grad():
        standing = is_correct(network(inputs), labels)
        for attack in standard(ball, 10):
            left = standing.nonzero()[:, 0]
            start = time.process_time()
            if len(left):
                found = attack(network, inputs[left], labels[left], RowRng(0, left)).points
                standing[left] = is_correct(network(found), labels[left])
            costs[attack.name] = (time.process_time() - start, int(standing.sum()))
    return standing, costs


def theirs(network: wm.uncertainty.Network, ball: Ball, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Costs]:
    logging.getLogger("auto-attack").setLevel(logging.ERROR)
    attacked = AutoAttack(outside(network).eval(), norm=type(ball).__name__.title(), eps=ball.radius, seed=0)
    costs: Costs = {}
    with torch.no_grad():
        standing = is_correct(network(inputs), labels)
        for stage in STAGES:
            left = standing.nonzero()[:, 0]
            attacked.attacks_to_run = [stage]
            start = time.process_time()
            if len(left):
                found, _ = attacked.run_standard_evaluation(inputs[left], labels[left], batch_size=250)
                standing[left] = is_correct(network(found), labels[left])
            costs[stage] = (time.process_time() - start, int(standing.sum()))
    return standing, costs


def compare(title: str, network: wm.uncertainty.Network, examples: Examples, ball: Ball, points: int) -> None:
    inputs, labels = examples[torch.arange(points)]
    network.eval()
    clean = float((network(inputs).argmax(1) == labels).float().mean())
    own, fast = ours(network, ball, inputs, labels)
    other, slow = theirs(network, ball, inputs, labels)
    before, after = (sum(seconds for seconds, _ in costs.values()) for costs in (slow, fast))
    print(f"  {title}, {ball}, n = {points}, seed 0: {before:.1f} -> {after:.1f} s  {before / after:.2f} x")
    for who, costs in (("pyautoattack", slow), ("ours", fast)):
        parts = ", ".join(f"{name} {seconds:.1f} s leaves {left}" for name, (seconds, left) in costs.items())
        print(f"    {who}: {parts}")
    print(f"    clean {clean:.1%}, robust: pyautoattack {float(other.float().mean()):.1%}, ours", end=" ")
    print(f"{float(own.float().mean()):.1%}")
    print(f"    broken by pyautoattack alone: {rows(own & ~other)}; by ours alone: {rows(other & ~own)}", flush=True)


def rows(flags: Tensor) -> list[int]:
    found: list[int] = flags.nonzero()[:, 0].tolist()
    return found


def trained(network: nn.Module, examples: Examples, method: wm.Method, updates: int) -> wm.uncertainty.Network:
    """A few updates: enough for a boundary that is worth attacking."""
    made = wm.Single(wm.at_input(channels_last(network)))
    optimizer = torch.optim.Adam(made.parameters(), 2e-3)
    rng = torch.Generator().manual_seed(0)
    for update in range(updates):
        inputs, labels = examples[torch.randint(len(examples), (64,), generator=rng)]
        made.eval()
        moved = method.perturb(made, inputs, labels, wm.rng.Rng.seeded(update))
        made.train()
        optimizer.zero_grad()
        method.loss_at(made, inputs, labels, moved).backward()
        optimizer.step()
    return made.eval()


def kept(folder: Path) -> wm.uncertainty.Network:
    network = wm.Single(wm.at_input(channels_last(LeNet())))
    network.load_state_dict(load_file(folder / "last.safetensors"))
    return network


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("runs", nargs="*", type=Path)
    arguments.add_argument("--points", type=int, default=60)
    arguments.add_argument("--balls", nargs="*", choices=BALLS, default=["linf-.1", "l2-1.5"])
    arguments.add_argument("--resnet", action="store_true")
    chosen = arguments.parse_args()
    header("AutoAttack: pyautoattack -> ours, process time")
    torch.manual_seed(0)
    images = ImageSet("fashion-mnist").draw()
    networks = {run.name: kept(run) for run in chosen.runs}
    if not networks:
        networks["LeNet, PGD"] = trained(LeNet(), images.train, wm.pgd(LINF_01, 0.02, 7), 600)
    for ball in chosen.balls:
        for name, network in networks.items():
            compare(name, network, images.test, BALLS[ball], chosen.points)
    if chosen.resnet:
        cifar = ImageSet("cifar-10", fraction=0.05).draw()
        small = trained(PreActResNet18(width=16), cifar.train, wm.pgd(wm.Linf(8 / 255), 2 / 255, 5), 100)
        compare("PreActResNet18(width=16)", small, cifar.test, wm.Linf(8 / 255), max(chosen.points // 4, 10))
