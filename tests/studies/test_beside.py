from pathlib import Path

import pytest

from pixel_studies import filled
from widemargin.report.document import Verdict
from widemargin.report.store import Store
from widemargin_studies import tab1, tab2, tab3
from widemargin_studies.beside import Group
from widemargin_studies.pixels import ImageStudy


@pytest.mark.parametrize(
    ("groups", "full"), [(tab1.GROUPS, tab1.FULL), (tab2.GROUPS, tab2.FULL), (tab3.GROUPS, tab3.FULL)]
)
def test_every_printed_row_is_a_cell(groups: tuple[Group, ...], full: ImageStudy) -> None:
    for group in groups:
        assert {(cell.name, cell.eps) for cell in group.cells} - {("standard", 0.0)} == set(group.printed)
        for cell in group.cells:
            assert cell in full.cells
            # At the scale of the paper nothing is changed.
            assert full.scale.cell(cell) == cell
            # The published rule: as many steps as reach the edge (Fashion-MNIST's are published as they are).
            assert cell.bench.data.name == "fashion-mnist" or cell.steps >= round(cell.eps / cell.alpha)
            assert (
                cell.name == "standard"
                or len(group.printed[cell.name, cell.eps]) == len(group.balls) + group.with_clean
            )


def test_the_papers_tables_are_held_to_our_own_criterion(tmp_path: Path) -> None:
    printed, counts = {}, {}
    for own, groups in ((tab1.FULL, tab1.GROUPS), (tab2.FULL, tab2.GROUPS), (tab3.FULL, tab3.GROUPS)):
        filled(Store(tmp_path), own)
        for group, verdict in zip(groups, own.report(Store(tmp_path)).verdicts, strict=True):
            assert isinstance(verdict, Verdict)
            name = f"{group.title}: {group.shows}"
            printed[name] = verdict.printed
            counts[name] = verdict.evidence.partition("in the paper's table in ")[2]
    assert counts == {
        "CIFAR-10, best robust: robust accuracy": "4, beyond chance in 3",
        "CIFAR-10, best trade-off: trade-off": "4, beyond chance in 2",
        "SVHN, best robust: robust accuracy": "1, beyond chance in 1",
        "SVHN, best trade-off: trade-off": "4, beyond chance in 3",
        "Fashion-MNIST: robust accuracy": "1, beyond chance in 1",
        "Fashion-MNIST: trade-off": "2, beyond chance in 1",
        "CIFAR-10, augmented: robust accuracy": "2, beyond chance in 1",
    }
    assert list(printed.values()) == ["held", "undecided", "undecided", "held", "not held", "not held", "undecided"]
