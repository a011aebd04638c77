"""Every file of an audit truncated, flipped, emptied, deleted: the same numbers, or one sentence whose advice works."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.cases import CASES, Case
from faults.commands import ended, started
from faults.tally import Tally

AUDIT = next(case for case in CASES if case.name == "audit")


def _flipped(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "truncated": lambda content, chance: content[: chance.randrange(1, len(content))],
    "flipped": _flipped,
    "emptied": lambda content, chance: b"",
    "deleted": lambda content, chance: None,
}


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    ended(folder, CASES[0].words)
    ended(folder, AUDIT.words)
    return folder


def files(folder: Path) -> list[str]:
    """Of the audit: what it keeps for itself, and what it tells."""
    kept = sorted(str(path.relative_to(folder)) for path in (folder / "run" / "audit").rglob("*") if path.is_file())
    return [*kept, "run/audit.json", "run/points.json", "run/audit.html"]


def check(case: Case, whole: Path, name: str, damage: str, chance: random.Random, folder: Path) -> None:
    """The command may refuse once, in one sentence that says to delete the file; then it must go on."""
    shutil.copytree(whole, folder)
    path = folder / name
    content = DAMAGES[damage](path.read_bytes(), chance)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    process = started(folder, case.words)
    process.join(300)
    if process.exitcode != 0:
        said = " ".join((folder / "said.txt").read_text().split())
        assert "Traceback" not in said, said
        assert path.name in said, said
        assert "delete it, and the same command" in said, said
        path.unlink()
        ended(folder, case.words)
    assert case.result(folder) == case.result(whole), f"{name} {damage}"
    shutil.rmtree(folder)


@pytest.mark.parametrize(("pattern", "damage"), [("/0", "flipped"), ("/0", "deleted"), ("findings.json", "truncated")])
def test_a_few(pattern: str, damage: str, audited: Path, tmp_path: Path) -> None:
    name = next(name for name in files(audited) if pattern in name)
    check(AUDIT, audited, name, damage, random.Random(5), tmp_path / "damaged")


@pytest.mark.slow
def test_every_file_in_every_way(audited: Path, tmp_path: Path, tally: Tally) -> None:
    chance = random.Random(7)
    with tally.of("audit: every file truncated, flipped, emptied and deleted") as counted:
        for name in files(audited):
            for damage in DAMAGES:
                for _ in range(4 if damage == "flipped" else 1):
                    check(AUDIT, audited, name, damage, chance, tmp_path / str(counted.tried))
                    counted.tried += 1
