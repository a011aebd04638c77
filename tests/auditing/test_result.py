import json

import pytest

from small_audits import CONFIG
from widemargin.auditing.guarded import SHORTEST
from widemargin.auditing.result import FORMAT, Audit

pytestmark = pytest.mark.usefixtures("one_thread")


def test_figures_are_plain_json_with_all_it_takes_to_trust_them(whole: Audit) -> None:
    found = whole
    figures = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert figures["version"] == FORMAT
    assert figures["n"] == 24
    assert [at["eps"] for at in figures["robust"]] == [0.2, 0.5, 1.0]
    assert all(at["low"] <= at["accuracy"] <= at["high"] for at in figures["robust"])
    assert figures["robust"][0]["attacks"] == list(found.attacks)
    assert {finding["verdict"] for finding in figures["findings"]} <= {"fine", "suspicious", "wrong"}
    points = json.loads(json.dumps(found.per_point(), allow_nan=False))
    assert len(points) == 24
    assert {point["by"] for point in points} <= {None, *found.attacks}
    assert {point["breaks"] for point in points} <= {None, 0.2, 0.5, 1.0}


def test_every_attack_says_on_how_many_points_it_was_run_and_what_it_breaks_alone_where_that_is_known(
    whole: Audit,
) -> None:
    first, *others = json.loads(json.dumps(whole.summary(), allow_nan=False))["attacks"]
    assert (first["name"], first["run_on"]) == (SHORTEST, whole.clean.count)
    # Of a linear classifier they find every margin.
    margins = whole.points["margin"]
    assert first["broken_alone"] == [int(((margins > 0) & (margins <= ball.radius)).sum()) for ball in CONFIG.balls]
    assert [one["broken_alone"] for one in others] == [None] * len(others)
    assert all(sum(one["broken"]) <= one["run_on"] <= whole.clean.count for one in others)
    within = [one["run_on"] for one in others[:-1]]
    assert within == sorted(within, reverse=True), "each is run on what those before it left"
    assert others[-1]["run_on"] == whole.robust[-1].count + sum(others[-1]["broken"])
