import numpy as np
import pytest

from widemargin.report.verdicts import Outcome
from widemargin_studies import app_three_cases as study
from widemargin_studies import pictorial
from widemargin_studies.pictorial import Case, Moves


def ideal(beyond_by: float = 0.0) -> dict[Case, Moves]:
    """The paper's drawing: LDP goes eps straight across, UDP stops `beyond_by` past the best boundary."""
    cloud = pictorial.PAIRS.draw()
    start, labels = cloud.points.numpy(), cloud.labels.numpy()
    found = {}
    for norm, radius, name in pictorial.SEARCHES:
        way = np.full(4, radius) if name == "LDP" else np.minimum(np.abs(start[:, 0]) + beyond_by, radius)
        end = start - np.stack([np.sign(start[:, 0]) * way, np.zeros(4)], 1)
        margin = end[:, 0] * np.sign(start[:, 0])
        ends, margins = (
            np.repeat(end[None], len(pictorial.WORK.seeds), 0),
            np.repeat(margin[None], len(pictorial.WORK.seeds), 0),
        )
        found[norm, radius, name] = Moves(start, labels, ends, margins)
    return found


def test_the_drawing_of_the_paper_holds_in_every_case() -> None:
    assert [verdict.outcome for verdict in study.verdicts(ideal())] == ["held"] * 5


@pytest.mark.parametrize(("beyond_by", "outcome"), [(0.5 * pictorial.STEP, "held"), (2 * pictorial.STEP, "not held")])
def test_udp_may_cross_by_one_step_only(beyond_by: float, outcome: Outcome) -> None:
    assert study.verdicts(ideal(beyond_by))[3].outcome == outcome


def test_a_udp_that_goes_all_the_way_is_not_adaptive() -> None:
    found = ideal()
    for norm, radius, name in found:
        found[norm, radius, name] = found[norm, radius, "LDP"]
    assert [verdict.outcome for verdict in study.verdicts(found)] == ["held"] * 3 + ["not held"] * 2


def test_the_table_has_a_row_for_every_search() -> None:
    assert len(pictorial.table(ideal(), pictorial.RADII).rows) == len(pictorial.SEARCHES)
