from pathlib import Path

import pytest

from command import refused


@pytest.mark.slow
def test_a_cluster_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    said = refused("study run demo --engine ray --address auto", capsys)
    assert said.startswith("--address must be that of a Ray cluster that runs, got auto")
