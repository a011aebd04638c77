"""Hostile files given to the command line: exit code 2 and one sentence, in bounded time and memory, nothing run."""

import os
import re
from pathlib import Path

import pytest

from faults.hostile import DESCRIPTIONS, FILES, LABELS, Hostile
from faults.limited import exit_code
from faults.tally import Tally

_NET = """import torch

def Net():
    net = torch.nn.Linear(1, 2)
    torch.nn.init.eye_(net.weight)
    torch.nn.init.zeros_(net.bias)
    return net
"""
COMMANDS = {
    "train": "train --data {} --method standard",
    "audit": "audit net.py:Net --eps .1 --data {}",
}
QUICK = [hostile for hostile in (*LABELS, *FILES) if not hostile.slow]


def said(folder: Path, words: str, data: str) -> str:
    """What it says, with bounded memory and time."""
    code = exit_code(folder, words, data)
    text = (folder / "said.txt").read_text()
    assert code == 2, f"{words} ended with {code}: {text[-2_000:]}"
    assert text.count("\n") == 1, f"not one line: {text}"
    assert len(text) < 2_000
    assert text.startswith("widemargin: ")
    assert not re.search(r"ImageFolder|ImageSet|Table\(|Npz|Traceback|MemoryError|malloc", text), text
    assert not (folder / "executed").exists()
    return text


def check(hostile: Hostile, verb: str, folder: Path) -> None:
    (folder / "net.py").write_text(_NET)
    words = f"{COMMANDS[verb].format(hostile.make(folder))} {hostile.words}"
    assert hostile.said in said(folder, words, str(folder))
    assert not (folder / "runs").exists()


def _takes(verb: str, hostile: Hostile) -> bool:
    return verb == "train" or "--unlabelled" not in hostile.words


@pytest.mark.parametrize("hostile", QUICK, ids=lambda hostile: hostile.name)
def test_train_refuses(hostile: Hostile, tmp_path: Path) -> None:
    check(hostile, "train", tmp_path)


@pytest.mark.parametrize("hostile", [one for one in QUICK if _takes("audit", one)], ids=lambda one: one.name)
def test_audit_refuses(hostile: Hostile, tmp_path: Path) -> None:
    check(hostile, "audit", tmp_path)


def _described(name: str, folder: Path) -> None:
    run = folder / "runs" / "hostile"
    run.mkdir(parents=True)
    (run / "run.yaml").write_text(DESCRIPTIONS[name])
    if name == "a terabyte":
        os.truncate(run / "run.yaml", 1 << 40)


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_resume_refuses(name: str, tmp_path: Path) -> None:
    _described(name, tmp_path)
    assert "run.yaml" in said(tmp_path, "resume hostile", "")


def test_a_pipe_for_a_description(tmp_path: Path) -> None:
    (tmp_path / "runs" / "hostile").mkdir(parents=True)
    os.mkfifo(tmp_path / "runs" / "hostile" / "run.yaml")
    assert "run.yaml must be a file, got a pipe" in said(tmp_path, "resume hostile", "")


@pytest.mark.slow
def test_hostile_files_are_counted(tmp_path: Path, tally: Tally) -> None:
    with tally.of("train, audit, resume: hostile files") as counted:
        for hostile in (*LABELS, *FILES):
            for verb in (verb for verb in COMMANDS if _takes(verb, hostile)):
                folder = tmp_path / verb / hostile.name.replace(" ", "-")
                folder.mkdir(parents=True)
                check(hostile, verb, folder)
                counted.tried += 1
        for name in DESCRIPTIONS:
            folder = tmp_path / "resume" / name.replace(" ", "-")
            folder.mkdir(parents=True)
            _described(name, folder)
            said(folder, "resume hostile", "")
            counted.tried += 1
