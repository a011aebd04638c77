import json

import pytest

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
