"""`widemargin compare`: finished runs, and audits of other models, in one table for each dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import Any

import rich.console

from widemargin.cli.display import print_json, say
from widemargin.cli.inputs import folder_for
from widemargin.cli.validation import validation_attack
from widemargin.cli.verbs.compare import Compare
from widemargin.files import Damaged, read_json, write_whole
from widemargin.report.comparison import Attack, Entry, Measured, compare
from widemargin.report.document import page
from widemargin.report.tables import Table
from widemargin.runs.folder import RunFolder
from widemargin.runs.keys import key_of
from widemargin.runs.run_yaml import is_run, read_description

_WRITERS: dict[str, Callable[[Sequence[Table]], str]] = {
    ".md": lambda tables: "\n\n".join(table.markdown() for table in tables) + "\n",
    ".tex": lambda tables: "% \\usepackage{booktabs}\n" + "\n\n".join(table.latex() for table in tables) + "\n",
    ".html": lambda tables: page("Comparison", "".join(table.html() for table in tables)),
}

_LONGEST = 80
_AUDITS = ("audit.json", "audit-l2.json", "audit-l1.json")


def compare_runs(words: Compare, console: rich.console.Console) -> None:
    if words.to is not None and words.to.suffix not in _WRITERS:
        raise ValueError(f"--to must end in {', '.join(_WRITERS)}, got {words.to}")
    if words.to is not None and not words.to.parent.is_dir():
        raise ValueError(f"--to must be in a folder that exists, got {words.to}")
    tables = _compared(_folders(words.runs))
    if words.to is not None:
        write_whole(words.to, _WRITERS[words.to.suffix](tables).encode())
        say(console, str(words.to))
        return
    if words.json:
        print_json({"tables": [table.to_dict() for table in tables]})
        return
    for table in tables:
        table.print(console)


def _compared(folders: Sequence[Path]) -> list[Table]:
    """What is damaged is left out, and a note below the last table says so."""
    entries, left_out = [], []
    audits: dict[Path, _Audits] = {}
    for folder in folders:
        try:
            audits[folder] = _read_audits(folder)
        except Damaged as problem:
            left_out.append(str(problem))
    wanted = _shared(list(audits.values()))
    for folder, read in audits.items():
        measured, unlike = _of_same_examples(read, wanted)
        try:
            is_run = (folder / "run.yaml").exists()
            entries.append(_entry(RunFolder(folder), measured) if is_run else _audit_entry(folder, measured))
            left_out += [f"{folder / name}, which is of other examples ({read[name][1]})" for name in unlike]
        except Damaged as problem:
            left_out.append(str(problem))
    if not entries:
        raise ValueError(left_out[0])
    *others, last = compare(entries)
    note = " ".join([*filter(None, [last.note]), *(f"Left out: {problem}." for problem in left_out)])
    return [*others, replace(last, note=note)]


def _folders(paths: Sequence[Path]) -> list[Path]:
    """Of runs and of audits, each once."""
    if not paths:
        raise ValueError("name at least one run: a folder that `widemargin train` made, or a folder of such folders")
    folders: dict[Path, Path] = {}
    for path in paths:
        for one in _folders_at(path):
            folders.setdefault(one.resolve(), one)
    return list(folders.values())


def _folders_at(path: Path) -> list[Path]:
    """A run, the audit of a model, or all such that a folder holds."""
    if path.is_dir():
        inside = [path] if (path / "run.yaml").exists() else [one.parent for one in sorted(path.glob("*/run.yaml"))]
        # Results of studies live in such folders too, and have tables of their own.
        runs = [one for one in inside if _is_run(one)]
        if not runs and RunFolder(path).checkpoint.exists():
            # It says how what is missing can be had again.
            read_description(RunFolder(path).description)
        audited = runs or _audits_in(path)
        if not audited:
            raise ValueError(f"{path} is no run of `widemargin train` and holds none, and no audit of a model either")
        return audited
    if path.name in _AUDITS and path.is_file():
        return [path.parent]
    # A model is named as `widemargin audit` takes it.
    named = folder_for(None, str(path), "audits")
    if any((named / name).exists() for name in _AUDITS):
        return [named]
    # With --weights their path is part of the folder's name.
    with_weights = sorted(named.parent.glob(f"{escape(named.name)}-*")) if ".py:" in str(path) else []
    audited = [one for folder in with_weights for one in _audits_in(folder)]
    if audited:
        return audited
    if path.is_file() or ".py:" in str(path):
        raise ValueError(f"{path} has no audit in {named}: `widemargin audit {path} --eps ...` makes one")
    raise ValueError(f"there is no folder {path}: `widemargin runs` lists the runs there are")


def _audits_in(path: Path) -> list[Path]:
    """The folder itself, or those in it; not those beside, which are on other data than the model's first audit."""
    if any((path / name).exists() for name in _AUDITS):
        return [path]
    found = {one.parent for name in _AUDITS for one in path.rglob(name)}
    return sorted(one for one in found if not (one.name.startswith("on-") and _holds_results(one.parent)))


def _holds_results(folder: Path) -> bool:
    """Is it that of a run or of an audited model?"""
    return any((folder / name).exists() for name in ("run.yaml", *_AUDITS))


def _is_run(folder: Path) -> bool:
    try:
        return is_run(read_description(folder / "run.yaml"))
    except Damaged:
        # It will be left out with a word on it.
        return True


def _entry(folder: RunFolder, audit: Measured | None) -> Entry:
    content, figures = read_description(folder.description), folder.read_figures()
    if figures is None:
        raise ValueError(f"{folder.path} is not done: finish it by `widemargin resume {folder.path}`, or leave it out")
    if "clean" not in figures:
        raise ValueError(f"{folder.path} has no accuracy, since its data has no test split: leave it out")
    try:
        run, data = dict(content["run"] if "run" in content else content["fitted"]), dict(content["data"])
        rows = data["rows"]
        n = int(rows[-1] if isinstance(rows, list) else rows)
        attack = _validation(run, n)
        robust = {attack: float(figures["robust"])} if attack is not None and "robust" in figures else {}
        tested = Measured(float(figures["clean"]), n, robust)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as problem:
        raise Damaged(f"{folder.path} is damaged ({problem!r})") from None
    return Entry(str(folder.path), str(content.get("title") or ""), run, data, tested, audit)


def _validation(run: Mapping[str, Any], n: int) -> Attack | None:
    attack = validation_attack(run)
    if attack is None or isinstance(attack, str):
        return None if attack is None else Attack("own", 0.0, n, (attack,))
    return Attack(f"{attack.name} {attack.norm}", attack.eps, n, (attack.effort,))


def _audit_entry(folder: Path, measured: Measured | None) -> Entry:
    """Of a model that is no run."""
    assert measured is not None
    content = read_json(next(folder / name for name in _AUDITS if (folder / name).exists()))
    model, data = (str(content.get(name, "")) for name in ("model", "data"))
    return Entry(str(folder), model or folder.name, {}, {"name": data}, measured, measured)


_Audits = dict[str, tuple[Measured, str]]
"""What was measured and of which examples, by the file's name, which says the norm."""


def _read_audits(folder: Path) -> _Audits:
    return {name: _read_audit(folder / name) for name in _AUDITS if (folder / name).exists()}


def _shared(audits: Sequence[_Audits]) -> str | None:
    """The norm in which models are compared if the audits of one are of different examples: all have it, best of all
    for the same examples."""
    audited = [read for read in audits if read]
    shared = [name for name in _AUDITS if audited and all(name in read for read in audited)]
    alike = [name for name in shared if len({read[name][1] for read in audited}) == 1]
    return next(iter([*alike, *shared]), None)


def _of_same_examples(audits: _Audits, wanted: str | None) -> tuple[Measured | None, list[str]]:
    """Of all norms together, as far as they are of the same examples: there is one clean accuracy.  And what is not."""
    if not audits:
        return None, []
    first, examples = audits[wanted] if wanted in audits else next(iter(audits.values()))
    alike = [measured for measured, others in audits.values() if others == examples]
    robust = {attack: share for measured in alike for attack, share in measured.robust.items()}
    return replace(first, robust=robust), [name for name, (_, others) in audits.items() if others != examples]


def _read_audit(path: Path) -> tuple[Measured, str]:
    """And of which examples it is."""
    try:
        content = read_json(path)
        names = ("data", "box", "perturbed_categories", "category_changes", "seed")
        on = ", ".join(f"{name} {_short(content[name])}" for name in names if name in content)
        robust = {
            Attack(str(one["norm"]), float(one["eps"]), int(one["n"]), tuple(map(str, one["attacks"])), on): float(
                one["accuracy"]
            )
            for one in content["robust"]
        }
        examples = ", ".join(f"{name} {content[name]}" for name in ("data", "n", "seed") if name in content)
        test = f"{content.get('data', '')} ({content.get('test_digest') or content.get('data_digest', '')})"
        return Measured(float(content["clean"]), int(content["n"]), robust, test), examples
    except Damaged as problem:
        raise Damaged(f"{problem}: delete it and audit the run again") from None
    except (KeyError, TypeError, ValueError) as problem:
        raise Damaged(f"{path} is damaged ({problem!r}): delete it and audit the run again") from None


def _short(value: object) -> str:
    """A box of many intervals would fill the page: what is said of it is another for every other one."""
    said = str(value)
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST // 2]}... ({key_of(said)[:8]})"
