"""Audits in which categories may change: of every point the worst row that it may become."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from category_rows import BOTH, BOX, ONE, changed, curved, is_row, labelled, may_become, rows, weighing
from small_audits import config
from widemargin.auditing.categories import names_of, worst_of_changes
from widemargin.auditing.guarded import CHANGE
from widemargin.auditing.result import Array, Audit
from widemargin.auditing.runner import audit
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Dataset, Subset
from widemargin.measure.distance import NO_ATTACK
from widemargin.perturb.balls import OPEN, Linf
from widemargin.perturb.categories import CategoryChanges
from widemargin.uncertainty.single import Single
from widemargin.uncertainty.wrap import as_network

pytestmark = pytest.mark.usefixtures("one_thread", "untyped")
BALLS = (Linf(0.05, BOX), Linf(0.2, BOX))
WEIGHTS = (1.0, 0.5, 2.0, 0.2, -0.5, 0.3, 0.0)
COUNT = 4


def asked(folder: Path, dataset: Dataset, changes: CategoryChanges | None) -> Audit:
    target = AuditTarget(curved(), "curved", "weights", dataset, "rows")
    found = audit(target, replace(config(BALLS, chunk=4, diagnoses=()), categories=changes), folder)
    assert found is not None
    return found


def measured(network: Single, examples: Subset) -> dict[str, Array]:
    """Of a linear network, by hand, in the form of an audit of two balls."""
    inputs, labels = examples[torch.arange(len(examples))]
    weights = torch.tensor(WEIGHTS)
    lead = (2 * labels - 1) * (inputs @ weights)
    margin = (lead / weights[:2].abs().sum()).clamp_min(0)
    place = inputs.clone()
    place[:, :2] -= ((2 * labels - 1) * margin)[:, None] * weights[:2].sign()
    breaks = torch.bucketize(margin, torch.tensor([0.05, 0.2]))
    return {
        "breaks": breaks.numpy(),
        "by": np.where((breaks < 2) & (margin > 0), 0, NO_ATTACK),
        "margin": margin.double().numpy(),
        "place": place.numpy(),
        "way": margin.double().numpy(),
        "tried": np.where(breaks.numpy() == 0, 0, 2),
        "certified": margin.clamp_max(0.2).double().numpy(),
    }


@pytest.mark.parametrize("changes", [ONE, BOTH])
def test_the_worst_of_all_rows_counts(changes: CategoryChanges) -> None:
    network, points = weighing(*WEIGHTS), rows(20)
    dataset = labelled(network, points)
    examples = Subset(dataset, torch.arange(20))
    known = worst_of_changes(network, examples, changes, lambda some: measured(network, some), number=7)
    for row in range(20):
        others = torch.stack(may_become(points[row], changes.most))
        slow = measured(network, Subset(dataset, torch.full((len(others),), row), others))
        for name in ("breaks", "margin", "way", "certified"):
            assert known[name][row] == slow[name].min()
        assert known["by"][row] == (7 if slow["margin"].min() == 0 else slow["by"][slow["margin"].argmin()])
        assert (known["place"][row] == slow["place"][slow["way"].argmin()]).all() or slow["margin"].min() == 0
    assert len(set(known["by"].tolist())) == 3
    places = torch.from_numpy(known["place"])
    assert is_row(places)
    assert int(changed(points, places).max()) <= changes.most
    differ = (known["changed_from"] != known["changed_to"]).sum(1)
    assert differ.tolist() == changed(points, places).tolist()


def test_one_form_without_a_certificate_is_none() -> None:
    network, points = weighing(*WEIGHTS), rows(20)
    examples = Subset(labelled(network, points), torch.arange(20))

    def some_failed(some: Subset) -> dict[str, Array]:
        found = measured(network, some)
        found["certified"][some.moved[:, 5].bool().numpy()] = np.nan  # type: ignore[index]
        return found

    known = worst_of_changes(network, examples, ONE, some_failed, number=7)
    assert np.isnan(known["certified"][known["margin"] > 0]).all()


def test_what_a_change_alone_breaks_is_said(tmp_path: Path) -> None:
    dataset = labelled(curved(), rows(COUNT, seed=3))
    result = asked(tmp_path, dataset, BOTH)
    assert CHANGE in result.attacks
    alone = (result.points["margin"] == 0) & result.right
    assert result.broken_by[CHANGE][0] == int(alone.sum()) > 0
    assert result.adversarial is not None
    assert set(result.points["row"][alone]) <= set(result.adversarial.rows)
    assert (result.adversarial.predictions != result.adversarial.adversarial_predictions).all()
    one = result.per_point()[int(np.flatnonzero(alone)[0])]
    assert one["by"] == CHANGE
    assert one["changes"][0].startswith("features ")
    assert " -> " in one["changes"][0]
    summary = result.summary()
    assert summary["category_changes"] == 2
    assert summary["perturbed_categories"] == ["features 2 to 4", "features 5 to 6"]


def test_without_changes_nothing_is_said_of_them(tmp_path: Path) -> None:
    result = asked(tmp_path, labelled(curved(), rows(4)), None)
    assert "categories" not in repr(result.config)
    assert not {"category_changes", "perturbed_categories"} & set(result.summary())
    assert "changes" not in result.per_point()[0]
    assert CHANGE not in result.attacks
    assert names_of(None, labelled(curved(), rows(4))) == ()


def test_many_categories_have_no_certificate_and_the_audit_says_so(tmp_path: Path) -> None:
    torch.manual_seed(0)
    points = torch.zeros(6, 40)
    points[:, 0], points[torch.arange(6), torch.arange(1, 7)] = torch.randn(6), 1
    network = torch.nn.Linear(40, 2)
    dataset = Dataset(points, network(points).argmax(1), (0, 1))
    changes = CategoryChanges((tuple(range(1, 40)),))
    ball = Linf(0.1, OPEN.holding(tuple(range(1, 40))))
    asked_for = replace(config((ball,), diagnoses=()), categories=changes)
    result = audit(AuditTarget(as_network(network), "linear", "w", dataset, "rows"), asked_for, tmp_path)
    assert result is not None
    assert result.certified is None
    assert any("got 39" in note for note in result.notes)
    leads = network.weight[1] - network.weight[0]
    bias = network.bias[1] - network.bias[0]
    sign = 2.0 * dataset.labels - 1
    # By hand: each category's lead, less what the number can do.
    least = (sign[:, None] * (points[:, :1] * leads[0] + leads[1:40] + bias)).min(1).values - 0.1 * leads[0].abs()
    expected = {row: bool(lead > 0) for row, lead in enumerate(least)}
    assert {
        int(row): bool(breaks) for row, breaks in zip(result.points["row"], result.points["breaks"], strict=True)
    } == expected
