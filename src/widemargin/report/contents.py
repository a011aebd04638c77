"""Titles of studies and about how long they take, read from a file beside them: importing them all takes seconds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from typing import Any

GROUP = "widemargin.studies"
FILE = "contents.json"


@dataclass(frozen=True)
class Listed:
    """A study in the table of contents; `core_minutes` of all of it, on the hardware that the file names."""

    title: str
    parts: int
    core_minutes: float


def studies() -> dict[str, EntryPoint]:
    """By name."""
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)}


def contents() -> tuple[dict[str, Listed], str]:
    """Studies whose packages have such a file, and on what they were timed."""
    listed: dict[str, Listed] = {}
    hardware: list[str] = []
    for package in dict.fromkeys(entry.module.partition(".")[0] for entry in studies().values()):
        file = files(package) / FILE
        if file.is_file():
            content = json.loads(file.read_text())
            listed |= {name: Listed(**study) for name, study in content["studies"].items()}
            hardware.append(content["hardware"])
    return listed, "; ".join(hardware)


def to_json(listed: dict[str, Listed], hardware: str) -> str:
    content: dict[str, Any] = {"hardware": hardware, "studies": {name: asdict(one) for name, one in listed.items()}}
    return json.dumps(content, indent=1) + "\n"
