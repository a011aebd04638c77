"""Every file of a run is cut short, changed by a bit, emptied or deleted: every verb ends with the right result, or
says in one sentence how to go on, and that way ends with the right result."""

import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from faults.cases import CASES, Result, _audit, _bytes, _calibration, _run_folder
from faults.commands import started
from faults.tally import Tally
from widemargin.cli.describe import describe
from widemargin.cli.verbs.train import Train
from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import prepare
from widemargin.runs.runner import run_training
from widemargin.runs.stop import AtUpdate
from widemargin.runs.threads import with_threads

FILES = ("run.yaml", "records.jsonl", "checkpoint.safetensors", "best.safetensors", "last.safetensors", "figures.json")
DAMAGES: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "cut short": lambda whole, chance: whole[: chance.randrange(1, len(whole))],
    "a bit changed": lambda whole, chance: _flipped(whole, chance.randrange(len(whole)), chance.randrange(8)),
    "emptied": lambda whole, chance: b"",
    "deleted": lambda whole, chance: None,
}
TRAIN = CASES[0].words


def _flipped(whole: bytes, place: int, bit: int) -> bytes:
    return whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :]


def _said(folder: Path) -> Result:
    return {"said": (folder / "said.txt").read_text()}


@dataclass(frozen=True)
class Verb:
    words: str
    result: Callable[[Path], Result]


VERBS = {
    "resume": Verb("resume run", _run_folder),
    "train": Verb(TRAIN, _run_folder),
    "export": Verb("export run --to model.safetensors", _bytes("model.safetensors")),
    "export last": Verb("export run --to model.safetensors --weights last", _bytes("model.safetensors")),
    "calibrate": Verb("calibrate run --points 60", _calibration),
    "runs": Verb("runs .", _said),
    "compare": Verb("compare run", _said),
    "audit": Verb("audit run --points 4 --eps .1", _audit),
}


@dataclass(frozen=True)
class Damage:
    file: str
    kind: str
    number: int
    finished: bool

    def do(self, folder: Path) -> bool:
        path = folder / "run" / self.file
        if not path.exists():
            return False
        content = DAMAGES[self.kind](path.read_bytes(), random.Random(f"{self}"))
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        return True


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """One that is finished, and one that is half done."""
    words = dict(re.findall(r"--(\w+) (\S+)", TRAIN))
    del words["out"]
    kinds = {"fraction": float, "eps": float, "alpha": float, "steps": int, "epochs": int, "batch": int}
    title, trial, drawn = describe(Train(**{name: kinds.get(name, str)(value) for name, value in words.items()}))
    folders = {finished: tmp_path_factory.mktemp("damage") for finished in (False, True)}
    for finished, folder in folders.items():
        run, until = RunFolder(folder / "run"), AtUpdate(15 if finished else 8)
        # As the command does, whose processes have one thread here.
        with with_threads(prepare(trial, drawn, "cpu", title), run) as task:
            assert run_training(task, run, until=until).finished == finished
    return folders


@pytest.fixture(scope="module")
def undisturbed(runs: dict[bool, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], Result]:
    @cache
    def found(verb: str, finished: bool) -> Result:
        folder = tmp_path_factory.mktemp("undisturbed") / "a"
        shutil.copytree(runs[finished], folder)
        assert ended(folder, VERBS[verb].words) == 0, (folder / "said.txt").read_text()
        return VERBS[verb].result(folder)

    return found


def ended(folder: Path, words: str) -> int | None:
    process = started(folder, words)
    process.join(300)
    return process.exitcode


def check(damage: Damage, verb: str, before: Path, right: Callable[[str, bool], Result], folder: Path) -> None:
    shutil.copytree(before, folder)
    assert damage.do(folder)
    code, said = ended(folder, VERBS[verb].words), (folder / "said.txt").read_text()
    seen = "damaged|missing|norun|mustbetheYAMLfile" + "|notdone" * damage.finished
    # Cells of a table are broken into lines.
    if verb in ("runs", "compare") and code == 0 and re.search(seen, re.sub(r"[│\s]", "", said)):
        return
    if code != 0:
        assert code == 2, said
        sentence = said.splitlines()[-1]
        assert sentence.startswith("widemargin: "), said
        assert "Traceback" not in said
        follow(sentence, folder)
        if verb in ("runs", "export", "export last") and not damage.finished:
            # What was to be resumed has been resumed to its end.
            damage = Damage(damage.file, damage.kind, damage.number, finished=True)
        assert ended(folder, VERBS[verb].words) == 0, said + (folder / "said.txt").read_text()
    assert VERBS[verb].result(folder) == right(verb, damage.finished), (damage, verb, said)
    assert not [path for path in folder.rglob("*") if "partial" in path.name]
    shutil.rmtree(folder)


def follow(said: str, folder: Path) -> None:
    """Do literally what a sentence says: delete what it names, and give the command that it gives."""
    for named in re.findall(r"delete (\S+?),", said):
        path = re.match(r"widemargin: (\S+)", said)[1] if named == "it" else named  # type: ignore[index]
        (folder / path).unlink()
    assert "`widemargin resume run`" in said, said
    assert ended(folder, "resume run") == 0, said + (folder / "said.txt").read_text()


def every(kinds: tuple[str, ...], verbs: tuple[str, ...], numbers: int, finished: bool) -> Iterator[tuple[Damage, str]]:
    for file, kind, verb in product(FILES, kinds, verbs):
        for number in range(numbers if kind in ("cut short", "a bit changed") else 1):
            if finished or file != "figures.json":
                yield Damage(file, kind, number, finished), verb


FINISHED = list(every(tuple(DAMAGES), ("resume", "train", "export", "export last", "calibrate", "runs"), 3, True))
HALF = list(every(tuple(DAMAGES), ("resume", "export", "runs"), 3, False))
OTHERS = list(every(("a bit changed", "deleted"), ("compare", "audit"), 1, True))


@pytest.mark.parametrize(
    ("damage", "verb"),
    [
        (Damage("best.safetensors", "deleted", 0, True), "export"),
        (Damage("best.safetensors", "a bit changed", 0, False), "resume"),
        (Damage("run.yaml", "a bit changed", 1, True), "resume"),
        (Damage("records.jsonl", "cut short", 0, False), "resume"),
        (Damage("figures.json", "a bit changed", 0, True), "calibrate"),
        (Damage("records.jsonl", "a bit changed", 0, True), "runs"),
    ],
    ids=str,
)
def test_a_few(
    damage: Damage, verb: str, runs: dict[bool, Path], undisturbed: Callable[[str, bool], Result], tmp_path: Path
) -> None:
    check(damage, verb, runs[damage.finished], undisturbed, tmp_path / "a")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "damages"),
    [
        ("a finished run: a damaged file, then resume, train, export, calibrate or runs", FINISHED),
        ("a half-done run: a damaged file, then resume, export or runs", HALF),
        ("a finished run: a damaged file, then audit or compare", OTHERS),
    ],
)
def test_every_file_and_damage(
    what: str,
    damages: list[tuple[Damage, str]],
    runs: dict[bool, Path],
    undisturbed: Callable[[str, bool], Result],
    tmp_path: Path,
    tally: Tally,
) -> None:
    with tally.of(what) as counted:
        for number, (damage, verb) in enumerate(damages):
            check(damage, verb, runs[damage.finished], undisturbed, tmp_path / str(number))
            counted.tried += 1
