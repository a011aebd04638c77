import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps import SHORT, WORDS, folders, write_data
from test_workers import until
from widemargin.runs.folder import RunFolder

LONG = f"sweep {WORDS} --epochs 150 --validate-every 10 --trials 2"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data(0)


SWEEP = """
import functools, sys
from widemargin import cli
from widemargin.runs import optuna_sweep

# As it is, but with a shorter patience for the dead.
optuna_sweep.Storage = functools.partial(optuna_sweep.Storage, heartbeat=optuna_sweep.Heartbeat(1, 5))
cli.main(sys.argv[1:])
"""


def started(words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SWEEP, *words.split()]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_processes_share_a_sweep() -> None:
    both = [started(f"{SHORT} --trials 8") for _ in range(2)]
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    reports = [out.split("Sweep:")[1] for out, _ in said]
    assert reports[0] == reports[1]
    assert "8 trials" in reports[0]
    trained = [set(re.findall(r"trial (\d+): (?:complete|pruned)", out)) for out, _ in said]
    assert not trained[0] & trained[1]
    assert sum(map(len, trained)) == 8
    assert all(trained), "one process did all"


@pytest.mark.slow
def test_a_killed_sweep_goes_on_from_its_checkpoint() -> None:
    killed = started(LONG)
    folder = RunFolder(Path("runs/sweep/trial-0000"))
    until(folder.checkpoint.is_file)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert folder.read_figures() is None
    out, error = started(LONG).communicate(timeout=300)
    assert error == ""
    # What was begun is done, in its folder, and counts once.
    assert "going on after update" in out
    assert "2 trials" in out
    assert len(folders()) == 2
    assert folder.path in folders()
    assert folder.read_figures() is not None
