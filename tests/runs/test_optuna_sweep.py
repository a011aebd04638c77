import json
import re
from pathlib import Path

import pytest

from command import widemargin
from sweeps import SHORT, folders, write_data
from widemargin.runs.folder import RunFolder


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data(0)


def test_the_same_command_goes_on_and_does_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin(f"{SHORT} --trials 2")
    before = {path: path.stat().st_mtime_ns for folder in folders() for path in folder.glob("*.safetensors")}
    first = capsys.readouterr().out.split("Sweep:")[1]
    widemargin(f"{SHORT} --trials 2")
    said = capsys.readouterr().out
    assert "in all:" not in said
    assert said.split("Sweep:")[1] == first
    widemargin(f"{SHORT} --trials 3")
    assert capsys.readouterr().out.count("in all:") == 1
    widemargin(f"{SHORT} --trials 3 --json")
    content = json.loads(capsys.readouterr().out)
    assert content.keys() == {"title", "attack", "searched", "trials", "chosen", "validated", "test"}
    assert content["attack"] == "PGD-10 linf 0.1"
    assert content["searched"]["alpha"] == {"low": 0.02, "high": 0.2, "log": True, "whole": False}
    robust = {trial["number"]: trial["robust"] for trial in content["trials"] if trial["state"] == "complete"}
    assert robust[content["chosen"]] == max(robust.values())
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_one_process_draws_the_same_again(capsys: pytest.CaptureFixture[str]) -> None:
    for out in ("one", "two"):
        widemargin(f"{SHORT} --trials 2 --out {out}")
    descriptions = [Path(out, f"trial-000{i}", "run.yaml").read_text() for i in (0, 1) for out in ("one", "two")]
    assert descriptions[0] == descriptions[1] != descriptions[2] == descriptions[3]


def test_what_is_hopeless_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin("sweep --data own.npz --method standard --lr 1e-5:.1:log --judge-eps .1 --epochs 8 --trials 16")
    said = capsys.readouterr().out
    stopped = [int(number) for number in re.findall(r"trial (\d+): pruned, clean", said)]
    assert stopped
    assert f"16 trials, {len(stopped)} pruned." in said
    for number in stopped:
        folder = RunFolder(Path(f"runs/sweep/trial-{number:04d}"))
        assert max(line["update"] for line in folder.lines()) < 8 * 9
        assert folder.read_figures() is None


def test_what_diverges_is_survived(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin("sweep --data own.npz --method standard --lr 1e30:1e38:log --judge-eps .1 --epochs 3 --trials 2")
    assert "2 trials, 2 diverged. None was trained to the end, so none is chosen." in " ".join(
        capsys.readouterr().out.split()
    )


INTERRUPTED = """
from pathlib import Path
import torch

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(2, 2)

    def forward(self, points):
        if self.training and Path("interrupt").exists():
            Path("interrupt").unlink()
            raise KeyboardInterrupt
        return super().forward(points)
"""


def test_an_interrupt_puts_the_trial_back(capsys: pytest.CaptureFixture[str]) -> None:
    Path("interrupted.py").write_text(INTERRUPTED)
    Path("interrupt").touch()
    words = f"{SHORT} --trials 2 --network interrupted.py:Net".replace("--width 8 ", "")
    with pytest.raises(SystemExit):
        widemargin(words)
    begun = (folders()[0] / "run.yaml").read_bytes()
    widemargin(words)
    assert "2 trials" in capsys.readouterr().out
    assert [folder.name for folder in folders()] == ["trial-0000", "trial-0002"]
    assert (folders()[0] / "run.yaml").read_bytes() == begun
