"""Margins of small networks against exact ones, and against longer searches: ours and those of foolbox.

python benchmarks/bench_margins.py                                a few points of each table
python benchmarks/bench_margins.py --points 30 --seeds 0 1 2      as in benchmarks/results
python benchmarks/bench_margins.py --others 100                   with foolbox and longer searches of ours, 100 points
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from timing import header
from torch import Tensor

import widemargin as wm
from widemargin.measure.distance import distances
from widemargin.perturb.balls import Norm
from widemargin.perturb.bisected_apgd import BisectedAPGD
from widemargin.perturb.fab import ShortestFAB
from widemargin.perturb.fmn import FMN
from widemargin.perturb.frozen import frozen
from widemargin.rng import RowRng

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from digits import conv_net
from exact_margins import TABLES, Array, box_of, exact_margins, table

NORMS: tuple[Norm, ...] = (wm.Linf, wm.L2, wm.L1)
FOOLBOX = {wm.Linf: ["LInfFMNAttack"], wm.L2: ["L2FMNAttack", "DDNAttack"], wm.L1: ["L1FMNAttack"]}


def first(cloud: wm.Dataset, points: int) -> wm.Dataset:
    return wm.Dataset(cloud.points[:points], cloud.labels[:points])


def timed(network: wm.uncertainty.Network, cloud: wm.Dataset, norm: Norm, box: wm.Box) -> tuple[Array, float]:
    start = time.process_time()
    found = distances(network, cloud, norm, box).distance.double().numpy()
    return found, time.process_time() - start


def against_exact(name: str, norm: Norm, boxed: bool, points: int, seeds: Sequence[int]) -> None:
    ratios, seconds = [], 0.0
    for seed in seeds:
        network, cloud = table(name, seed)
        box = box_of(cloud) if boxed else wm.OPEN
        found, took = timed(network, first(cloud, points), norm, box)
        ratios.append(found / exact_margins(network, cloud, points, norm, box))
        seconds += took
    ratio = np.concatenate(ratios)
    near, nearest = (int((ratio < most).sum()) for most in (1.01, 1.001))
    where = f"  {name:<14}{norm.__name__:<5}{'box' if boxed else 'open':<5}"
    print(
        f"{where}n = {len(ratio)}: within 1 % {near}, .1 % {nearest}, worst {ratio.max():.3f}, {seconds:.2f} s",
        flush=True,
    )


def longer_searches(
    network: wm.uncertainty.Network, cloud: wm.Dataset, norm: Norm, box: wm.Box, classes: int
) -> dict[str, Tensor]:
    """Places by each attack alone, ours with many more steps than `distances` gives them."""
    targets = classes - 1
    ours = (
        FMN(norm, box, 1000, targets=targets),
        ShortestFAB(norm(1.0, box), targets),
        BisectedAPGD(norm, box, 100, 10),
    )
    with frozen(network):
        rng = RowRng(1, torch.arange(len(cloud)))
        found = {attack.name: attack(network, cloud.points, cloud.labels, rng).points for attack in ours}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import foolbox
    assert isinstance(box.low, float)
    assert isinstance(box.high, float)
    model = foolbox.PyTorchModel(network.head, bounds=(box.low, box.high), device="cpu")
    for attack in FOOLBOX[norm]:
        made = getattr(foolbox.attacks, attack)(steps=1000)
        found[f"foolbox's {attack}"] = made(model, cloud.points, cloud.labels, epsilons=None)[1]
    return found


def against_others(name: str, norm: Norm, points: int, seeds: Sequence[int]) -> None:
    shorter: dict[str, int] = {}
    longer: dict[str, int] = {}
    for seed in seeds:
        network, whole = table(name, seed)
        cloud = first(whole, points)
        # What foolbox knows: one interval for all features.
        box = wm.Box(float(whole.points.min()), float(whole.points.max()))
        own, _ = timed(network, cloud, norm, box)
        for other, places in longer_searches(network, cloud, norm, box, int(whole.labels.max()) + 1).items():
            with torch.no_grad():
                across = (network(places).argmax(1) != cloud.labels).numpy()
            far = np.where(across, norm(0.0, box).norm(places - cloud.points).double().numpy(), np.inf)
            shorter[other] = shorter.get(other, 0) + int((far < 0.99 * own).sum())
            longer[other] = longer.get(other, 0) + int((own < 0.99 * far).sum())
    parts = "; ".join(f"{other} {shorter[other]}, longer {longer[other]}" for other in shorter)
    print(
        f"  {name:<14}{norm.__name__:<5}n = {points * len(seeds)}: shorter by over 1 % than distances {parts}",
        flush=True,
    )


def of_images(norm: Norm, points: int) -> None:
    network, inputs, labels = conv_net(points)
    found, took = timed(wm.Single(wm.at_input(network)), wm.Dataset(inputs, labels), norm, wm.perturb.UNIT)
    print(f"  LeNet of digits {norm.__name__:<5}n = {len(found)}: mean {found.mean():.5f}, {took:.2f} s", flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--points", type=int, default=5)
    arguments.add_argument("--seeds", nargs="*", type=int, default=[0])
    arguments.add_argument("--others", type=int, default=0, help="points of each table for longer searches")
    chosen = arguments.parse_args()
    header("Margins: distances / exact ones, process time of distances")
    for name in TABLES:
        for norm in NORMS:
            for boxed in (False, True):
                against_exact(name, norm, boxed, chosen.points, chosen.seeds)
    for norm in NORMS:
        of_images(norm, 10 * min(chosen.points, 5))
    for name in TABLES if chosen.others else ():
        for norm in NORMS:
            against_others(name, norm, chosen.others, chosen.seeds)
