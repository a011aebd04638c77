"""Ctrl-C, SIGTERM and time limits: real signals to real processes, whose runs then end as if nothing had happened."""

import errno
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from faults.cases import _run_folder
from faults.commands import ended, started
from widemargin import cli
from widemargin.cli.stopping import Asked, listening, seconds
from widemargin.files import read_tensors

TRAIN = "train --data digits --fraction .1 --network lenet --method standard --epochs 12 --batch 32 --out run"


def widemargin(words: str) -> None:
    cli.main(words.split())


def refused(words: str, capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        widemargin(words)
    assert stopped.value.code == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error.removeprefix("widemargin: ")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    ended(folder, TRAIN)
    return folder


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_run_goes_on(sent: signal.Signals, code: int, undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    process = started(folder, TRAIN)
    while not (folder / "run" / "records.jsonl").exists() and process.is_alive():
        time.sleep(0.01)
    time.sleep(0.3)
    os.kill(process.pid or 0, sent)
    process.join(120)
    said = (folder / "said.txt").read_text()
    assert process.exitcode == code, said
    found = re.search(r"stopped at update (\d+) of 60, which is saved; go on with: (.*)\n", said)
    assert found is not None, said
    assert 0 < int(found[1]) < 60
    assert read_tensors(folder / "run" / "checkpoint.safetensors")[1]["update"] == int(found[1])
    ended(folder, found[2].removeprefix("widemargin "))
    assert _run_folder(folder) == _run_folder(undisturbed)


def test_a_time_limit_saves_and_is_no_failure(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = iter([False] * 7 + [True] * 100)
    monkeypatch.setattr(Asked, "now", lambda self: self.stop_after is not None and next(asked))
    with pytest.raises(SystemExit) as stopped:
        widemargin(f"{TRAIN} --stop-after 2h")
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert "widemargin: stopped after 2h at update 7 of 60, which is saved; go on with: widemargin resume run\n" in said
    assert "Next" not in said
    widemargin("resume run")
    assert _run_folder(tmp_path) == _run_folder(undisturbed)
    assert refused(f"{TRAIN} --stop-after soon", capsys).startswith("--stop-after must be a time such as 90s, 30m, 2h")


def test_times_and_signals() -> None:
    assert [seconds(said) for said in ("90s", "30m", "2h", "1d", ".5h")] == [90, 1800, 7200, 86400, 1800]
    wish = Asked("0s")
    assert wish.now()
    with listening(None) as wish:
        assert not wish.now()
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert wish.now()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(SystemExit) as left:
        wish.leave("here", "widemargin")
    assert left.value.code == 143


@pytest.mark.parametrize(
    "words",
    [
        "resume run",
        f"{TRAIN} --seed 1 --epochs 1".replace("--out run", "--out other"),
        "export run --to model.safetensors",
        "export run --to model.pt2",
        "calibrate run --points 20",
    ],
)
def test_a_full_disk_is_one_sentence_and_leaves_what_was_there(
    words: str, undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(undisturbed / "run", "run")
    Path("run/figures.json").unlink() if words == "resume run" else None
    before = _files(tmp_path / "run")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert "cannot be written (No space left on device): make room or choose another folder" in refused(words, capsys)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert _files(tmp_path / "run") == before
    assert not [path for path in tmp_path.rglob("*") if "partial" in path.name or path.suffix == ".pt2"]


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--device meta", "--device must be one that this computer has, got meta"),
        ("--capacity 1000000", "this computer has not enough memory for that"),
        (f"--seed {2**70}", "--seed must be a whole number from 0 to 2^63 - 1"),
        ("--seed -1", "--seed must be a whole number from 0 to 2^63 - 1"),
    ],
)
def test_what_no_computer_can_do_is_one_sentence(
    words: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(f"train --data digits --method standard {words}", capsys).startswith(sentence)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (OSError(errno.EIO, "Input/output error"), "the system refused to read or write (Input/output error)"),
        (MemoryError(), "this computer has not enough memory for that"),
        (RecursionError("deep"), "something here is nested too deeply"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "this computer has not enough memory"),
        (torch.OutOfMemoryError("CUDA out of memory"), "this computer has not enough memory for that"),
    ],
    ids=repr,
)
def test_whatever_the_system_refuses_is_one_sentence(
    problem: Exception, sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, console: object) -> None:
        raise problem

    monkeypatch.setattr(cli.Version, "__call__", fail)
    assert refused("version", capsys).startswith(sentence)


def test_names_are_no_markup_and_a_damaged_run_does_not_hide_the_others(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    odd = tmp_path / "all" / "q[" / "x]"
    shutil.copytree(undisturbed / "run", odd)
    widemargin("resume all/q[/x]")
    assert "in all/q[/x]\n" in capsys.readouterr().out
    widemargin("export all/q[/x] --to all/q[/m].safetensors")
    assert capsys.readouterr().out == "all/q[/m].safetensors\n"
    shutil.copytree(undisturbed / "run", tmp_path / "all" / "[b]good")
    for name in ("run.yaml", "records.jsonl", "figures.json"):
        damaged = shutil.copytree(undisturbed / "run", tmp_path / "all" / f"bad-{name}")
        (damaged / name).write_bytes((damaged / name).read_bytes().replace(b"0", b"1", 3))
    shutil.copytree(undisturbed / "run", tmp_path / "all" / "lost")
    (tmp_path / "all" / "lost" / "run.yaml").unlink()
    widemargin("runs all")
    rows = {row.split("│")[1].strip(): row for row in capsys.readouterr().out.splitlines() if row.startswith("│")}
    assert "60" in rows["[b]good"]
    for name in ("run.yaml", "records.jsonl", "figures.json"):
        assert f"all/bad-{name}/{name} is" in rows[f"bad-{name}"]
        assert "damaged" in rows[f"bad-{name}"]
    assert "holds no run (no run.yaml)" in rows["lost"]
    widemargin("compare all/[b]good all/bad-figures.json")
    said = " ".join(capsys.readouterr().out.split())
    assert "Left out: all/bad-figures.json/figures.json is damaged (its checksum differs)" in said
    assert "standard" in said
    assert "is damaged" in refused("compare all/bad-figures.json", capsys)


def test_calibrate_and_audit_look_at_the_data_that_the_run_has_seen(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{i % 7},{i % 5 / 5},{i % 2}" for i in range(80)]
    Path("own.csv").write_text("\n".join(["a,b,label", *rows]) + "\n")
    widemargin("train --data own.csv --method standard --epochs 1 --out own")
    widemargin("calibrate own")
    Path("own.csv").write_text("\n".join(["a,b,label", *rows[:-1]]) + "\n")
    for words in ("calibrate own", "calibrate own --out elsewhere", "audit own --eps .1 --points 2 --out elsewhere"):
        assert refused(words, capsys).startswith("the data must be as it was when the run in own began, but it has")
    shutil.copy("own.csv", "now.csv")
    widemargin("calibrate own --data now.csv")
    assert Path("own/on-now.csv/calibration.json").exists()
