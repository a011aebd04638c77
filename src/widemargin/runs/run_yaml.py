"""run.yaml: what was done, in words that can be read and repeated.  Runs and results of studies share the format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from widemargin.data.limits import MOST_DEPTH, MOST_DESCRIPTION, short, size_of
from widemargin.files import Absent, Damaged, sealed_text, unsealed_text, write_whole
from widemargin.runs import version_1
from widemargin.runs.keys import VERSION
from widemargin.runs.run import Run
from widemargin.runs.serialize import from_dict, to_dict

# In C where PyYAML was built with it: a description with a box of each feature's own is long.
# Of numbers such as 1:30:00 the reading takes a time that grows with the square of their length.
_LONG_NUMBER = re.compile(r"[-+0-9:._]{1000}")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def written(description: Mapping[str, Any]) -> str:
    """The text of a run.yaml."""
    return yaml.safe_dump({"version": VERSION, **description}, sort_keys=False, width=120, allow_unicode=True)


def write_description(path: Path, description: Mapping[str, Any]) -> None:
    write_whole(path, sealed_text(written(description)).encode())


def is_run(description: Mapping[str, Any]) -> bool:
    """Or is it of a stored result, which has such a file too?"""
    return "key" in description and "result" not in description


def loaded(text: str) -> Any:
    """What YAML says, without aliases: one may stand for far more than the file has, or for what it is inside of."""
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("an alias, which no run needs")
            if isinstance(event, yaml.ScalarEvent) and _LONG_NUMBER.match(event.value):
                raise ValueError("a number of more than 1,000 characters")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_DEPTH:
                raise ValueError(f"lists and mappings more than {MOST_DEPTH} deep")
        return yaml.load(text, Loader=_LOADER)
    except (yaml.YAMLError, ArithmeticError, LookupError, TypeError, AttributeError) as problem:
        # Constructors of dates and numbers raise what their parts do.
        raise ValueError(" ".join(str(problem).split()) or type(problem).__name__) from None


def read_description(path: Path) -> dict[str, Any]:
    """A run.yaml in the words of this version, whatever version wrote it."""
    if not path.exists():
        raise Absent(f"{path.parent} holds no run (no {path.name}): {_where_it_is(path.parent)}")
    size_of(path, MOST_DESCRIPTION)
    try:
        text = path.read_text(encoding="utf-8")
        return parsed(unsealed_text(text, path), path)
    except Damaged as problem:
        raise Damaged(f"{problem}: {_as_it_was(path.parent)}") from None
    except (OSError, UnicodeError) as problem:
        said = problem.strerror if isinstance(problem, OSError) else " ".join(str(problem).split())
        raise Damaged(f"{path} must be the YAML file of a run, got {said}: {_as_it_was(path.parent)}") from None


def parsed(text: str, path: Path) -> dict[str, Any]:
    """A description in the words of this version; `path` is where it was found."""
    try:
        content = loaded(text)
    except ValueError as problem:
        raise Damaged(f"{path} must be the YAML file of a run, got {' '.join(str(problem).split())}") from None
    if not isinstance(content, dict):
        raise Damaged(f"{path} must be the YAML file of a run, got a {type(content).__name__}")
    version = content.get("version", 1)
    if version not in range(1, VERSION + 1):
        raise ValueError(f"{path} must be of version 1 to {VERSION}, got {short(repr(version))}: update widemargin")
    return upgraded(content) if version == 1 else content


def upgraded(content: Mapping[str, Any]) -> dict[str, Any]:
    """A description of version 1 as version 2 would have written it, but for its key: that of its folder's files."""
    changed = {name: version_1.renamed(content[name]) for name in ("run", "fitted") if name in content}
    with suppress(ValueError):
        # Fields that came later get their defaults.
        changed = {name: to_dict(from_dict(value)) if name == "run" else value for name, value in changed.items()}
    return {"version": VERSION, **content, **changed}


def _where_it_is(folder: Path) -> str:
    if (folder / "checkpoint.safetensors").exists():
        return f"`widemargin resume {folder}` writes it again from the checkpoint"
    return "`widemargin runs` lists those there are"


def _as_it_was(folder: Path) -> str:
    if (folder / "checkpoint.safetensors").exists():
        return (
            f"delete it, and `widemargin resume {folder}` writes it as it was; other settings are another run, which "
            "`widemargin train` begins in another folder"
        )
    return "there is no checkpoint that knows it, so start the run over with `widemargin train` in another folder"


def read_run(path: Path) -> Run:
    """The run of a run.yaml; ValueError in one sentence if it is none, or holds what is the user's own."""
    content = read_description(path)
    if "fitted" in content:
        raise ValueError(
            f"{path} is of a network or data that Python made, which a file cannot: resume by calling fit again with "
            "the same arguments"
        )
    try:
        run = from_dict(content.get("run"))
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None
    if not isinstance(run, Run):
        raise ValueError(f"{path} must describe a run, got {type(run).__name__}")
    return run
