import pytest
import torch

from widemargin import L1, L2, OPEN, Box, Dataset, Linf, Single, at_input
from widemargin.measure.distance import distances
from widemargin.networks.mlp import MLP
from widemargin.perturb.apgd import APGD, TargetedAPGD
from widemargin.perturb.balls import UNIT
from widemargin.perturb.fab import FAB, ShortestFAB
from widemargin.perturb.objectives import dlr_loss, margin_loss, perturbed_loss
from widemargin.perturb.square import Square
from widemargin.perturb.suites import shortest, standard, starts_of
from widemargin.rng import Rng
from widemargin.uncertainty.network import Network

MAKERS = {maker.__name__: maker for maker in (APGD, TargetedAPGD, FAB, ShortestFAB, Square, Linf, L2, L1, Box)} | {
    "OPEN": OPEN,
    "UNIT": Box(0.0, 1.0),
    **{repr(loss): loss for loss in (perturbed_loss, dlr_loss, margin_loss)},
}


def test_the_standard_and_what_differs_from_it_by_name() -> None:
    names = {classes: [attack.name for attack in standard(Linf(0.1), classes)] for classes in (2, 3, 5, 10, 100)}
    assert names[10] == names[100] == ["apgd-ce", "fab-t", "apgd-t", "square"]
    assert names[5] == ["apgd-ce", "fab-t (4 targets)", "apgd-t (4 targets)", "square"]
    assert names[3] == ["apgd-ce", "fab-t (2 targets)", "apgd-dlr", "square"]
    assert names[2] == ["apgd-ce", "fab-t (1 targets)", "apgd-margin", "square"]
    assert standard(L2(0.5), 10) == (APGD(L2(0.5)), FAB(L2(0.5)), TargetedAPGD(L2(0.5)), Square(L2(0.5)))
    assert standard(L1(9), 10)[:2] == (APGD(L1(9), restarts=5), TargetedAPGD(L1(9), 5))
    assert standard(L1(9), 10)[1].name == "apgd-t"
    for attack in (*standard(L1(9.0), 10), *standard(Linf(0.1, OPEN), 3)):
        assert eval(repr(attack), dict(MAKERS)) == attack
    with pytest.raises(ValueError, match="at least 2 classes, got 1"):
        standard(Linf(0.1), 1)


def small(rows: int = 16) -> tuple[Network, Dataset]:
    with Rng.seeded(2).as_global():
        network = Single(at_input(MLP(4, 32, 3))).double()
        points = torch.rand(rows, 4, dtype=torch.float64)
    return network, Dataset(points, network(points).argmax(1))


def test_two_classes_have_one_target() -> None:
    for norm, classes, names in (
        (L2, 2, ["FMN-T", "DDN", "shortest fab-t (1 targets)", "bisected APGD"]),
        (L1, 9, ["FMN-T", "FMN", "shortest fab-t (3 targets)", "bisected APGD"]),
    ):
        assert [attack.name for attack in shortest(norm, UNIT, classes)] == names


def test_a_search_of_a_table_begins_in_more_places_than_one_of_images() -> None:
    assert starts_of(torch.zeros(3, 30)) > starts_of(torch.zeros(3, 1, 5, 6)) == starts_of(torch.zeros(3, 784)) == 1
    network, cloud = small(4)
    assert [attack.name for attack in distances(network, cloud, L2).attacks] == ["FMN-T", "bisected APGD"]
