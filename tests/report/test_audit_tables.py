from dataclasses import replace

import numpy as np
import pytest

from small_audits import CONFIG, ten_points
from widemargin.auditing.result import Audit
from widemargin.report.audit_tables import class_name, tables

pytestmark = pytest.mark.usefixtures("one_thread")


def test_attacks_stand_in_the_order_in_which_they_went() -> None:
    (table,) = (table for table in tables(ten_points()) if table.title == "Successes of each attack")
    assert table.columns == ("attack", "points attacked", "successes", "linf 0.1", "linf 0.2")
    assert table.rows == (("minimum-norm", "8", "3", "3", "0"), ("apgd-ce", "not recorded", "2", "0", "2"))


def test_the_table_says_on_which_points_an_attack_was_run_and_what_is_known_of_it_alone() -> None:
    tried = np.array([0, 0, 0, 0, 0, 1, 1, 1, 0, 0])
    way = np.array([0, 0, 0.05, 0.05, 0.05, 0.2, np.inf, np.inf, np.inf, np.inf])
    (table,) = (
        table
        for table in tables(ten_points(points={**ten_points().points, "tried": tried, "way": way}))
        if table.title == "Successes of each attack"
    )
    assert [row[:3] for row in table.rows] == [("minimum-norm", "8", "3"), ("apgd-ce", "3", "2")]
    assert "not what an attack would reach alone." in table.note
    assert "surrogate" not in table.note
    assert "their successes alone: 3 within 0.1, 4 within 0.2." in table.note


def test_a_class_that_the_data_have_not_is_called_by_its_number() -> None:
    assert [class_name(("a", "b"), number) for number in (1, 2)] == ["b", "2"]


def test_what_is_proven_has_a_column_if_proofs_were_searched_for(whole: Audit) -> None:
    easy = replace(whole, points={**whole.points, "certified": np.full(24, CONFIG.balls[-1].radius)})
    without = replace(whole, points={**whole.points, "certified": np.full(24, np.nan)})
    proven, unproven = (
        next(table for table in tables(one) if table.title == "Accuracy under AutoAttack") for one in (easy, without)
    )
    assert unproven.columns == ("perturbation", "accuracy", "95 % interval")
    assert len(proven.columns) == 4
