from dataclasses import replace
from pathlib import Path

import pytest

from widemargin.report import study
from widemargin.report.store import Store
from widemargin.runs.folder import RunFolder
from widemargin_studies import tab2


def test_networks_are_shared_and_cost_nothing_then(tmp_path: Path) -> None:
    seen = set()

    def measured(shape: object, batch: int) -> float:
        seen.add(batch)
        return 1.0

    store, own = Store(tmp_path), replace(tab2.ONE, pace=measured)
    whole = study.left(own, store)
    # 55,000 images of 12.5 passes on average for 100 epochs, and three times 1,000 images in 4 balls.
    udp = [cell for cell in own.cells if cell.label == "UDP-PGD (eps 0.5)"]
    alone = replace(own, cells=tuple(udp))
    judged = 3 * alone.judge.passes / 60
    assert study.left(alone, store).core_minutes == pytest.approx(100 * 55_000 * 12.5 / 60 + judged)
    assert seen == {256}
    folder = RunFolder(tmp_path / "trained" / own.runs(udp[0])[0].key)
    folder.path.mkdir(parents=True)
    folder.records.write_text('{"update": 10750, "loss": 1.0}\n')
    # Half of it is done: epoch 50.
    assert study.left(alone, store).core_minutes == pytest.approx(50 * 55_000 * 12.5 / 60 + judged)
    assert study.left(own, store).core_minutes == pytest.approx(whole.core_minutes - 50 * 55_000 * 12.5 / 60)
