from itertools import product

import numpy as np
import pytest

from exact_margins import TABLES
from exact_ratios import check, ratios
from linear_oracle import NORMS
from widemargin.perturb.balls import Norm


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
@pytest.mark.parametrize("name", TABLES)
def test_margins_of_all_tables_are_exact_to_one_per_cent(name: str, norm: Norm) -> None:
    check(np.concatenate([ratios(name, norm, boxed, seed, 30) for boxed, seed in product((False, True), range(3))]))
