"""What must hold of every norm."""

import pytest

from cases import NORMS
from widemargin.perturb.balls import Linf, Norm, norms
from widemargin.testing import assert_ball


def test_no_norm_is_missing() -> None:
    library = {norm for norm in norms().values() if norm.__module__ == Linf.__module__}
    assert library == set(NORMS)


@pytest.mark.parametrize("norm", NORMS)
def test_it_holds(norm: Norm) -> None:
    assert_ball(norm)
