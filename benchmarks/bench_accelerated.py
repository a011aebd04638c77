"""A plain ResNet-18 from elsewhere, of full width: AutoAttack against pyautoattack, and PGD against the plain loop.

python benchmarks/bench_accelerated.py                     about 3 minutes of one core
python benchmarks/bench_accelerated.py --points 8 --iterations 100 --queries 5000      the standard's own numbers

Labels are the network's own classes, so that most points stand and every attack does all its work.  Both sides get the
same points, iterations and queries; the defaults are a tenth of the standard's, in the same proportion.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from pyautoattack import AutoAttack
from timing import header, ratio, show
from torch import Tensor, nn

import widemargin as wm
from widemargin.measure.autoattack import autoattack
from widemargin.measure.robustness import robust_accuracy
from widemargin.perturb.pgd import pgd_search
from widemargin.perturb.square import Square
from widemargin.perturb.suites import standard

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from foreign import ResNet18

EPS = 0.004


def network(width: int) -> nn.Module:
    """With normalisations that have seen something; not trained, for speed does not depend on it."""
    torch.manual_seed(0)
    made = ResNet18(width)
    with torch.no_grad():
        for _ in range(3):
            made(torch.rand(16, 3, 32, 32))
        # Classes far enough apart for most points to stand.
        made.fc.weight.mul_(20)
    return made.eval()


def theirs(model: nn.Module, images: Tensor, labels: Tensor, iterations: int, queries: int) -> tuple[int, float]:
    logging.getLogger("auto-attack").setLevel(logging.ERROR)
    attacked = AutoAttack(model, norm="Linf", eps=EPS, seed=0)
    attacked.apgd.n_iter = attacked.apgd_targeted.n_iter = attacked.fab.n_iter = iterations
    attacked.square.n_queries = queries
    begun = time.process_time()
    found, _ = attacked.run_standard_evaluation(images, labels, batch_size=250)
    with torch.no_grad():
        standing = model(found).argmax(1) == labels
    return int(standing.sum()), time.process_time() - begun


def ours(model: nn.Module, images: Tensor, labels: Tensor, iterations: int, queries: int) -> tuple[int, float]:
    whole, ball = wm.Single(wm.at_input(model)), wm.Linf(EPS)
    attacks = [
        replace(attack, **({"queries": queries} if isinstance(attack, Square) else {"steps": iterations}))
        for attack in standard(ball, 10)
    ]
    begun = time.process_time()
    standing = autoattack(whole, wm.Dataset(images, labels), ball, attacks).standing
    return int(standing.sum()), time.process_time() - begun


def compare(width: int, points: int, iterations: int, queries: int) -> None:
    model, images = network(width), torch.rand(points, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        labels = model(images).argmax(1)
    (stood, slow), (standing, fast) = (side(model, images, labels, iterations, queries) for side in (theirs, ours))
    print(
        f"  AutoAttack, ResNet-18 (width {width}), linf {EPS}, {points} points, {iterations} steps, {queries} queries"
    )
    print(
        f"    pyautoattack {slow:.1f} s, {stood} stand; ours {fast:.1f} s, {standing} stand: {fast / slow:.2f}",
        flush=True,
    )


def plain_pgd(model: nn.Module, images: Tensor, labels: Tensor, alpha: float, steps: int) -> Tensor:
    """The published loop as everybody writes it (Madry et al. 2018), from the clean point."""
    loss, moved = nn.CrossEntropyLoss(), images.clone().detach()
    for _ in range(steps):
        moved.requires_grad = True
        gradient = torch.autograd.grad(loss(model(moved), labels), moved)[0]
        moved = moved.detach() + alpha * gradient.sign()
        moved = (images + (moved - images).clamp(-EPS, EPS)).clamp(0, 1).detach()
    return moved


def pgd(width: int, points: int, steps: int = 10) -> None:
    model, images = network(width), torch.rand(points, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        labels = model(images).argmax(1)
    data, attack = wm.Dataset(images, labels), pgd_search(wm.Linf(EPS), EPS / 4, steps)
    whole = wm.Single(wm.at_input(model))

    def loop() -> Tensor:
        found = plain_pgd(model, images, labels, EPS / 4, steps)
        with torch.no_grad():
            return model(images), model(found)  # type: ignore[return-value]

    name = f"PGD, {steps} steps, ResNet-18 (width {width}), {points} points: plain -> ours"
    show(name, *ratio(loop, lambda: robust_accuracy(whole, data, attack), rounds=3))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--width", type=int, default=64)
    arguments.add_argument("--points", type=int, default=4)
    arguments.add_argument("--iterations", type=int, default=10)
    arguments.add_argument("--queries", type=int, default=500)
    chosen = arguments.parse_args()
    header("A network from elsewhere")
    compare(chosen.width, chosen.points, chosen.iterations, chosen.queries)
    pgd(chosen.width, 8)
    pgd(16, 32)
