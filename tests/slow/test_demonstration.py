"""The demonstration as a user runs it: what the README shows must come out."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from widemargin.report.store import Store
from widemargin_studies import demo, fig3


@pytest.mark.slow
def test_the_demonstration_shows_what_the_readme_says(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from widemargin.cli import main; main()", "demo", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    for name in ("margins.png", "page.html", "report.md"):
        assert (tmp_path / name).stat().st_size > 1_000
        assert name in done.stdout
    found = fig3.results(demo.STUDY.cells(), Store(tmp_path / "runs"))
    worst = {
        (fig3.TITLES[d], name): np.mean([m.worst for m in own]) for d, by in found.items() for name, own in by.items()
    }
    assert min(m.errors for m in found[fig3.CORRIDOR]["LDP-PGD"]) > 0
    assert max(m.errors for m in found[fig3.CORRIDOR]["UDP-near"]) == 0
    for data in fig3.TITLES.values():
        assert worst[data, "UDP-near"] > worst[data, "standard"] + 0.15
        assert worst[data, "UDP-near"] > worst[data, "UDP-PGD"] + 0.15

    again = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0
    assert "Training" not in again.stdout, "a second call trains nothing"
