import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tyro

from test_workers import until
from widemargin import cli
from widemargin.cli.sweep import _Bar, words_of
from widemargin.cli.verbs.train import Train
from widemargin.runs.folder import RunFolder
from widemargin.runs.run_yaml import read_run
from widemargin.runs.sweep import Range

WORDS = "--data own.npz --method udp --eps .05:.4 --alpha .02:.2:log --steps 1:2 --judge-eps .1 --width 8 --lr .03"
SHORT = f"sweep {WORDS} --epochs 2"
LONG = f"sweep {WORDS} --epochs 150 --validate-every 10 --trials 2"


def widemargin(words: str) -> None:
    cli.main(words.split())


def refused(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        widemargin(words)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error.removeprefix("widemargin: ")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data(0)


def write_data(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = np.arange(200) % 2
    np.savez("own.npz", x=(rng.normal(0, 0.3, (200, 2)) + labels[:, None]).astype(np.float32), y=labels)


def folders() -> list[Path]:
    return sorted(Path("runs/sweep").glob("trial-*"))


def test_a_sweep_chooses_by_validation_and_tests_the_chosen_one_alone(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin(f"{SHORT} --trials 3")
    said = capsys.readouterr().out
    assert "never searched: accuracy on the validation part under PGD-10 linf 0.1" in " ".join(said.split())
    best = {path: max(line.get("robust", 0) for line in RunFolder(path).lines()) for path in folders()}
    assert len(best) == 3
    (tested,) = [folder for folder in folders() if RunFolder(folder).read_figures()]
    assert best[tested] == max(best.values())
    assert f"Next: widemargin audit {tested} --eps 0.1" in said
    assert Path("runs/sweep/sweep.png").read_bytes().startswith(b"\x89PNG")
    assert "| trial | robust | clean | eps | alpha | steps |" in Path("runs/sweep/report.md").read_text()
    # The command that goes on from there is one that `train` takes, with another seed.
    (command,) = re.findall(r"with another seed: widemargin (.*)", said)
    widemargin(f"{command} --out again")
    run, again = (read_run(folder / "run.yaml") for folder in (tested, Path("again")))
    assert again == replace(run, seed=1)


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


def test_an_interrupt_puts_the_trial_back(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(self: _Bar, record: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(_Bar, "updated", interrupt)
        with pytest.raises(SystemExit):
            widemargin(f"{SHORT} --trials 2")
    begun = (folders()[0] / "run.yaml").read_bytes()
    widemargin(f"{SHORT} --trials 2")
    assert "2 trials" in capsys.readouterr().out
    assert [folder.name for folder in folders()] == ["trial-0000", "trial-0002"]
    assert (folders()[0] / "run.yaml").read_bytes() == begun


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


def test_without_optuna_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert refused(SHORT, capsys) == (
        "`widemargin sweep` needs 'widemargin[sweeps]', which is not installed: pip install 'widemargin[sweeps]'\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--eps .2 --alpha .1 --steps 1 --judge-eps .1", "a sweep needs a range to search: give --eps"),
        (
            "--eps .5:.1 --alpha .1 --steps 1 --judge-eps .1",
            "--eps must be a number, LOW:HIGH or LOW:HIGH:log, got .5:.1",
        ),
        ("--eps 0:.1:log --alpha .1 --steps 1 --judge-eps .1", "--eps must be a number, LOW:HIGH or LOW:HIGH:log"),
        ("--eps .1:.2:lin --alpha .1 --steps 1 --judge-eps .1", "--eps must be a number, LOW:HIGH or LOW:HIGH:log"),
        (
            "--eps .2 --alpha .1 --steps 1:2.5 --judge-eps .1",
            "--steps must be a whole number, LOW:HIGH or LOW:HIGH:log",
        ),
        ("--eps .1:.2 --alpha .1 --steps 1 --judge-eps 0", "--judge-eps must be a radius above 0"),
        ("--eps .1:.2 --judge-eps .1", "udp needs --alpha and --steps"),
        ("--eps .1:.2 --alpha .1 --steps 1 --judge-eps .1 --trials 0", "--trials must be at least 1, got 0"),
        (
            "--eps .1:.2 --alpha .1 --steps 1 --judge-eps .1 --storage nowhere",
            "--storage must be the address of a database that can be written, such as sqlite:///sweep.db, got nowhere",
        ),
        (
            "--eps .1:.2 --alpha .1 --steps 1 --judge-eps .1 --storage sqlite:///no/such/folder.db",
            "--storage must be the address of a database that can be written",
        ),
    ],
)
def test_wrong_words(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(f"sweep --data own.npz --method udp {words}", capsys).startswith(said)
    assert folders() == []


def test_changed_data_is_another_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin(f"{SHORT} --trials 1")
    write_data(1)
    capsys.readouterr()
    assert refused(f"{SHORT} --trials 2", capsys).startswith("the data must be as it was when the sweep began")


def test_words_of_a_run_are_understood_by_train() -> None:
    train = Train("a b.npz", "udpr", eps=0.2, steps=3, weight=1.0, latent=True, size=(8, 9), seed=4, box="open")
    config = (tyro.conf.FlagCreatePairsOff,)
    words = shlex.split(shlex.join(words_of(train)))
    assert tyro.cli(Train, args=words, config=config) == train


def test_values_are_rounded_within_the_range() -> None:
    assert Range(0.1, 0.5).rounded(0.123456) == 0.1235
    assert Range(0.12344, 0.5).rounded(0.12344) == 0.12344
    assert Range(1, 9, whole=True).rounded(3.0) == 3
