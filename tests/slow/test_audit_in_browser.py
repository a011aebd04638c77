"""The page of an audit, made by the command line on real digits and opened in a real browser."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]


def widemargin(*words: str, cwd: Path) -> str:
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "widemargin.cli", *words],
        cwd=cwd,
        env=alone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_the_page_of_an_audit_opens(tmp_path: Path) -> None:
    widemargin("train", "--data", "digits", "--method", "standard", "--epochs", "3", "--out", "run", cwd=tmp_path)
    said = widemargin("audit", "run", "--eps", ".05", ".2", "--points", "20", cwd=tmp_path)
    figures = json.loads((tmp_path / "run" / "audit.json").read_text())
    assert figures["n"] == 20
    assert "audit.html" in said
    page = (tmp_path / "run" / "audit.html").as_uri()
    assert CHROMIUM is not None
    opened = [CHROMIUM, *QUIET, f"--user-data-dir={tmp_path / 'profile'}"]
    shown = subprocess.run(
        [*opened, "--dump-dom", page], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    for words in ("Audit of standard on digits", "Class by class", "Points broken by each attack"):
        assert words in shown
    assert f"{100 * figures['clean']:.1f} %" in shown
    picture = tmp_path / "page.png"
    size = "--window-size=1200,3000"
    subprocess.run([*opened, size, f"--screenshot={picture}", page], capture_output=True, timeout=120, check=True)
    assert picture.stat().st_size > 50_000
