"""The page of an audit, made by the command line on real digits and opened in a real browser."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest

DARK, LIGHT = 0, 1
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
    said = widemargin("audit", "run", "--eps", ".05", ".2", "--points", "20", "--save-adversarial", cwd=tmp_path)
    figures = json.loads((tmp_path / "run" / "audit.json").read_text())
    assert figures["n"] == 20
    assert "audit.html" in said
    assert (tmp_path / "run" / "adversarial.png").stat().st_size > 10_000
    page = (tmp_path / "run" / "audit.html").as_uri()
    assert CHROMIUM is not None
    opened = [CHROMIUM, *QUIET, f"--user-data-dir={tmp_path / 'profile'}"]
    shown = subprocess.run(
        [*opened, "--dump-dom", page], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    for words in ("Audit of standard on digits", "Accuracy by class", "Successes of each attack"):
        assert words in shown
    assert f"{100 * figures['clean']:.1f} %" in shown
    for width, scheme in ((1200, DARK), (1200, LIGHT), (400, DARK), (400, LIGHT)):
        picture = tmp_path / f"page-{width}-{scheme}.png"
        size = f"--window-size={width},3000"
        dark = f"--blink-settings=preferredColorScheme={scheme}"
        subprocess.run(
            [*opened, size, dark, f"--screenshot={picture}", page], capture_output=True, timeout=120, check=True
        )
        assert picture.stat().st_size > 50_000
        top_left = matplotlib.image.imread(picture)[2, 2, :3].mean()
        assert (top_left < 0.2) == (scheme == DARK)
    # A window has at least 500 pixels, a frame may have fewer.  The page has no script; a copy says how wide it is.
    told = "<script>parent.postMessage(`${innerWidth} ${document.documentElement.scrollWidth}`, '*')</script>"
    whole = (tmp_path / "run" / "audit.html").read_text()
    (tmp_path / "measured.html").write_text(whole.replace("</html>", f"{told}</html>"))
    frame = tmp_path / "frame.html"
    frame.write_text(
        "<!doctype html><script>onmessage = event => { document.title = event.data }</script>"
        "<iframe src='measured.html' style='width:400px;height:800px;border:0'></iframe>"
    )
    dom = subprocess.run(
        [*opened, "--hide-scrollbars", "--virtual-time-budget=5000", "--dump-dom", frame.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    assert "<title>400 400</title>" in dom, "tables and pictures scroll, the page does not"
