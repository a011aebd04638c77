from pathlib import Path

import numpy as np
import pytest

from widemargin.report.store import Store
from widemargin_studies.digits_audit import CONFIG, DIGITS, METHODS


def test_the_table_shows_what_the_audits_stored(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert DIGITS.missing(store) == len(DIGITS.jobs(store)) == len(METHODS)
    with pytest.raises(ValueError, match="run the study first"):
        DIGITS.table(store)
    for number, name in enumerate(METHODS):
        robust = [{"accuracy": 0.5, "low": 0.4, "high": 0.6} for _ in CONFIG.balls]
        findings = [{"name": "gradients", "verdict": "fine" if number else "wrong"}]
        numbers = {"clean": 0.9, "robust": robust, "findings": findings}
        store.save(DIGITS.parts(name), numbers, {"margin": np.ones(3), "certified": np.zeros(3)}, {})
    assert DIGITS.missing(store) == 0
    first, *others = DIGITS.table(store).rows
    middle = ["50 [40, 60]"] * len(CONFIG.balls)
    assert list(first[1:]) == ["90", *middle, "1.000", "0.000", "gradients"]
    assert all(row[-1] == "none" for row in others)
    assert DIGITS.picture(store).caption
