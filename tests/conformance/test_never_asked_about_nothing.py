"""No measure asks a network about an empty batch: a new one is a new row here.  Of attacks `test_attacks` holds it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

from cases import ATTACKS, SHORTEST_ATTACKS
from never_asked import CASES, LABELS, NORMS, POINTS, RADII, REFUSED, Flattening, network
from widemargin import Dataset, Single, at_input
from widemargin.measure.accuracy import accuracy
from widemargin.measure.autoattack import autoattack
from widemargin.measure.calibration import uncertainty_report
from widemargin.measure.certified import certified, certified_radius
from widemargin.measure.curve import bisected, robustness
from widemargin.measure.diagnostics import Examined, all_findings
from widemargin.measure.distance import distances
from widemargin.measure.robustness import robust_accuracy
from widemargin.measure.surrogate import fooled, surrogate
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import L1, L2, UNIT, Ball, Linf
from widemargin.perturb.pgd import pgd_search
from widemargin.uncertainty.network import Network


def test_the_network_refuses_an_empty_batch() -> None:
    with pytest.raises(RuntimeError, match=REFUSED):
        network()(POINTS[:0])


class Refusing(TorchFunctionMode):
    """Certificates read layers, and take none that refuses: so the products themselves do."""

    def __torch_function__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if called in (linear, torch.matmul) and isinstance(args[0], Tensor) and args[0].numel() == 0:
            raise RuntimeError(REFUSED)
        return called(*args, **(kwargs or {}))


def proven(measure: Callable[[Network, Dataset, Ball], object], cloud: Dataset, ball: Ball) -> object:
    network = Single(at_input(nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Flatten(), Flattening().linear))).eval()
    with Refusing():
        return measure(network, cloud, ball)


def quick(ball: Ball) -> tuple[Attack, ...]:
    return tuple(ATTACKS[name](ball) for name in ("apgd-ce", "fab", "apgd-t", "square"))


def _transfer(network: Network, cloud: Dataset, ball: Ball) -> object:
    return fooled(network, cloud, ball, surrogate(network, cloud, ball))


def _distances(network: Network, cloud: Dataset, ball: Ball) -> object:
    norm = type(ball)
    assert norm in (Linf, L2, L1)
    names = ("fmn-t", "ddn" if norm is L2 else "fmn", "shortest fab", "bisected apgd")
    return distances(network, cloud, norm, ball.box, [SHORTEST_ATTACKS[name](ball) for name in names])


MEASURES: dict[str, Callable[[Network, Dataset, Ball], object]] = {
    "accuracy": lambda network, cloud, ball: accuracy(network, cloud, 3),
    "distances": _distances,
    "autoattack": lambda network, cloud, ball: autoattack(network, cloud, ball, quick(ball)),
    "curve": lambda network, cloud, ball: robustness(network, cloud, [ball], quick, rows=3),
    "bisected curve": lambda network, cloud, ball: bisected(network, cloud, ball, quick, halvings=2),
    "pgd": lambda network, cloud, ball: robust_accuracy(network, cloud, pgd_search(ball, ball.radius / 4, 3)),
    "calibration": lambda network, cloud, ball: uncertainty_report(network, cloud, {}),
    "certificate": lambda _, cloud, ball: proven(certified, cloud, ball),
    "certified radius": lambda _, cloud, ball: proven(certified_radius, cloud, ball),
    "transfer": _transfer,
}


def cloud(labels: Tensor) -> Dataset:
    return Dataset(POINTS, labels)


CASES += [(norm, radius, "some") for norm in ("l2", "l1") for radius in RADII]


@pytest.mark.parametrize(("norm", "radius", "labels"), CASES)
@pytest.mark.parametrize("name", MEASURES)
def test_measures(name: str, norm: str, radius: str, labels: str) -> None:
    assert MEASURES[name](network(), cloud(LABELS[labels]), NORMS[norm](RADII[radius], UNIT)) is not None


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("radius", RADII)
def test_every_diagnosis(labels: str, radius: str) -> None:
    found = all_findings(Examined(network(), cloud(LABELS[labels]), Linf(RADII[radius], UNIT), (0.1, 0.2)))
    assert not [one.evidence for one in found if REFUSED in one.evidence]
