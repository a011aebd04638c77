"""Ctrl-C, SIGTERM and time limits: real signals to real processes, whose runs then end as if nothing had happened."""

import os
import re
import shutil
import signal
import time
from itertools import chain, repeat
from pathlib import Path

import pytest
from rich.console import Console

from command import refused, widemargin
from disks import full_disk
from faults.cases import _run_folder
from faults.commands import ended, started
from widemargin import cli
from widemargin.cli.stopping import Asked, listening, seconds
from widemargin.cli.train import train
from widemargin.cli.verbs.train import Train
from widemargin.files import read_tensors

TRAIN = "train --data digits --fraction .1 --network lenet --method standard --epochs 12 --batch 32 --out run"


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
    found = re.search(r"stopped at update (\d+) of 60, which is saved; resume with: (.*)\n", said)
    assert found is not None, said
    assert 0 < int(found[1]) < 60
    assert read_tensors(folder / "run" / "checkpoint.safetensors")[1]["update"] == int(found[1])
    ended(folder, found[2].removeprefix("widemargin "))
    assert _run_folder(folder) == _run_folder(undisturbed)


def test_a_time_limit_saves_and_is_no_failure(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = cli.verb_of(f"{TRAIN} --stop-after 2h".split())
    assert isinstance(words, Train)
    # When the command begins, and before each update.
    times = chain([0.0] * 8, repeat(7200.0))
    with pytest.raises(SystemExit) as stopped:
        train(words, Console(), lambda: next(times))
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert (
        "widemargin: stopped after 2h at update 7 of 60, which is saved; resume with: widemargin resume run\n" in said
    )
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
    words: str, undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(undisturbed / "run", "run")
    Path("run/figures.json").unlink() if words == "resume run" else None
    before = _files(tmp_path / "run")
    with full_disk():
        assert "cannot be written (File too large): make room or choose another folder" in refused(words, capsys)
    assert _files(tmp_path / "run") == before
    assert not [path for path in tmp_path.rglob("*") if "partial" in path.name or path.suffix == ".pt2"]


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


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
