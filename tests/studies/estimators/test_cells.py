import pytest

from widemargin.perturb.objectives import CLIMBED
from widemargin_studies.estimators import STUDY
from widemargin_studies.estimators.cells import CORRIDOR, DIGITS, KINDS, SLABS, same_as

pytest.importorskip("sklearn")


def test_the_cross_is_full_but_for_cells_that_are_others() -> None:
    for data, count in ((DIGITS, 3 + 4 * 5), (SLABS, 1 + 4 * 3), (CORRIDOR, 1 + 4 * 3)):
        rows = STUDY.rows(data)
        assert len(rows) == count
        left_out = {(kind, measure) for kind in KINDS for measure in CLIMBED} - set(rows)
        assert all(same_as(*row, data) in ("none", "as entropy") for row in left_out)
