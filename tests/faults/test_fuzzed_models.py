"""Whatever chance makes of a model's file, it is read as a network or refused in one sentence."""

from __future__ import annotations

import os
import random
import resource
import time
import traceback
from pathlib import Path

import pytest
import torch

from faults.commands import processes
from faults.models import SHAPE, write_all
from faults.mutations import MUTATIONS
from faults.tally import Tally
from widemargin.io.load import load_model

pytest.importorskip("onnx")
_ROOM = 3 * 2**30
"""Bytes that a reader may ask for."""
_AT_ONCE = 100
_LONGEST = 240


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_all(folder)
    return folder


def read(folder: Path, suffix: str, numbers: range) -> None:
    """In a process of its own: what it did last is in did.txt."""
    torch.set_num_threads(1)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + _ROOM, used + _ROOM))
    whole, damaged = (folder / f"model{suffix}").read_bytes(), folder / f"damaged{suffix}"
    for number in numbers:
        chance = random.Random(f"{suffix} {number}")
        (folder / "did.txt").write_text(str(number))
        try:
            damaged.write_bytes(chance.choice(MUTATIONS[suffix])(whole, chance))
            own = suffix == ".safetensors"
            network = load_model(f"{folder}/own.py:net" if own else str(damaged), damaged if own else None).network
            with torch.no_grad():
                network.logits(network.encode(torch.rand(2, *SHAPE)))
        except Exception as problem:
            if not isinstance(problem, ValueError) or len(str(problem).splitlines()) != 1:
                (folder / "did.txt").write_text(f"{number}\n{traceback.format_exc()}")
                os._exit(1)
    os._exit(0)


def check(folder: Path, suffix: str, numbers: range) -> None:
    process = processes().Process(target=read, args=(folder, suffix, numbers))
    process.start()
    process.join(_LONGEST)
    code = process.exitcode
    process.kill()
    assert code == 0, f"{suffix} ended with {code} at {(folder / 'did.txt').read_text()}"


@pytest.mark.parametrize("suffix", MUTATIONS)
def test_a_few(suffix: str, files: Path) -> None:
    check(files, suffix, range(30))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", MUTATIONS)
def test_a_minute(suffix: str, files: Path, tally: Tally) -> None:
    begun = time.monotonic()
    with tally.of(f"{suffix}: damaged by chance") as counted:
        while time.monotonic() - begun < 60:
            check(files, suffix, range(counted.tried, counted.tried + _AT_ONCE))
            counted.tried += _AT_ONCE
