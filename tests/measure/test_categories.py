"""Margins and certificates of rows whose categories may change: those of the worst row that each may become."""

import pytest
import torch

from category_rows import BOTH, BOX, ONE, changed, curved, is_row, labelled, may_become, rows, weighing
from widemargin.data.dataset import Dataset, Subset
from widemargin.measure.categories import alternatives, changed_certified_radius, changed_distances
from widemargin.measure.certified import certified_radius
from widemargin.perturb.balls import Linf
from widemargin.perturb.categories import CategoryChanges

pytestmark = pytest.mark.usefixtures("untyped")
# A third of the rows lie next to the boundary between the categories of the first column.
WEIGHTS = (1.0, 0.5, 2.0, 0.2, -0.5, 0.3, 0.0)


@pytest.mark.parametrize("changes", [ONE, BOTH])
def test_margins_of_a_linear_network_are_the_least_of_every_row(changes: CategoryChanges) -> None:
    network, points = weighing(*WEIGHTS), rows(20)
    dataset = labelled(network, points)
    nearest = changed_distances(network, dataset, Linf, BOX, changes)
    sign = 2 * dataset.labels - 1
    for row in range(20):
        leads = [float(sign[row] * (one @ torch.tensor(WEIGHTS))) for one in may_become(points[row], changes.most)]
        assert float(nearest.distance[row]) == pytest.approx(max(min(leads) / 1.5, 0), rel=0.01, abs=1e-6)
    assert is_row(nearest.places)
    assert int(changed(points, nearest.places).max()) <= changes.most
    with torch.no_grad():
        assert bool((network(nearest.places).argmax(1) != dataset.labels).all())
    assert 0 < int((nearest.distance == 0).sum()) < 20


def test_certificates_hold_for_all_that_a_row_may_become() -> None:
    network, points = curved(), rows(4)
    dataset, ball = labelled(network, points), Linf(0.3, BOX)
    radius = changed_certified_radius(network, dataset, ball, BOTH)
    for row in range(4):
        others = torch.stack(may_become(points[row], 2))
        many = Dataset(others, dataset.labels[row].expand(len(others)).clone(), dataset.names)
        assert float(radius[row]) == pytest.approx(float(certified_radius(network, many, ball).min()), abs=1e-9)
    assert bool((changed_distances(network, dataset, Linf, BOX, BOTH).distance >= radius * (1 - 1e-4)).all())
    assert bool((radius <= certified_radius(network, dataset, ball)).all())


def test_no_certificate_where_not_all_are_proven() -> None:
    many = CategoryChanges((tuple(range(1, 40)),))
    points = torch.zeros(3, 40)
    points[:, 5] = 1
    with pytest.raises(ValueError, match="at most 32 rows that a row may become by changes of category, got 39"):
        changed_certified_radius(
            weighing(*WEIGHTS),
            Dataset(points, torch.tensor([0, 1, 0])),
            Linf(0.1, BOX.holding(tuple(range(1, 40)))),
            many,
        )


def test_a_row_stands_for_itself_where_nothing_can_be_worse() -> None:
    network, points = weighing(*WEIGHTS), rows(20)
    dataset = labelled(network, points)
    wrong = Dataset(points, torch.cat([1 - dataset.labels[:2], dataset.labels[2:]]), dataset.names)
    of = alternatives(network, Subset(wrong, torch.arange(1, 20)), ONE)
    assert of.row.tolist() == sorted(of.row.tolist())
    assert int((of.row == 0).sum()) == 1
    assert torch.equal(of.examples.moved[0], points[1])  # type: ignore[index]
    inputs, labels = of.examples[torch.arange(len(of.row))]
    assert torch.equal(of.examples.rows, of.row + 1)
    assert torch.equal(labels, wrong.labels[of.row + 1])
    with torch.no_grad():
        is_wrong = network(inputs).argmax(1) != labels
    # One that is broken by a change alone is there once, all others in every form.
    for row in of.row.unique().tolist():
        assert int((of.row == row).sum()) == (1 if bool(is_wrong[of.row == row].any()) else 4)
