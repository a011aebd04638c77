"""Where does a run live?  In a folder of its own: what it is, what happened, and what it takes to go on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from widemargin.conduct.description import read_description, written
from widemargin.files import write_whole

Line = dict[str, Any]
"""One record: an update's loss, or a validation's figures."""


@dataclass(frozen=True)
class RunFolder:
    """run.yaml says what is done, records.jsonl what happened, checkpoint.safetensors holds all it takes to go on,
    last and best.safetensors the weights, figures.json what came out on the test part."""

    path: Path

    @property
    def description(self) -> Path:
        return self.path / "run.yaml"

    @property
    def records(self) -> Path:
        return self.path / "records.jsonl"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def best(self) -> Path:
        return self.path / "best.safetensors"

    @property
    def last(self) -> Path:
        return self.path / "last.safetensors"

    @property
    def figures(self) -> Path:
        return self.path / "figures.json"

    @contextmanager
    def claimed(self, description: Mapping[str, Any]) -> Iterator[None]:
        """For one process alone, and for this run alone; whoever is killed loses the claim."""
        self._check_free(description)
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(f"{self.path} is being trained by another process: wait for it, or stop it") from None
        with lock:
            self._check_free(description)
            if not self.description.exists():
                write_whole(self.description, written(description).encode())
            yield

    def _check_free(self, description: Mapping[str, Any]) -> None:
        if self.description.exists():
            begun = read_description(self.description)
            if begun.get("key") != description["key"]:
                raise ValueError(
                    f"{self.path} holds another run, {begun.get('key')}, this one is {description['key']}: choose "
                    "another --out, or go on with that one by `widemargin resume`"
                )
            if begun.get("data") != description["data"]:
                raise ValueError(
                    f"the data must be as it was when the run in {self.path} began, but it has changed: begin a "
                    "new run in another folder"
                )
        elif self.path.exists() and any(not inside.name.startswith(".") for inside in _inside(self.path)):
            raise ValueError(f"{self.path} must be empty or hold this run, got other files: choose another folder")

    def save_figures(self, figures: Mapping[str, Any]) -> None:
        write_whole(self.figures, (json.dumps(figures, indent=1) + "\n").encode())

    def read_figures(self) -> Mapping[str, Any] | None:
        """None until the run is done."""
        if not self.figures.exists():
            return None
        try:
            return dict(json.loads(self.figures.read_text()))
        except ValueError as problem:
            raise ValueError(f"{self.figures} is damaged ({problem}): delete it and resume the run") from None

    def lines(self) -> list[Line]:
        """All whole records so far."""
        if not self.records.exists():
            return []
        whole = self.records.read_bytes().rpartition(b"\n")[0]
        return _parsed(whole, self.records)


class Records:
    """A file of records that grows; what came after the last checkpoint is cut off, to happen again."""

    def __init__(self, path: Path | None, size: int) -> None:
        self.lines: list[Line] = []
        self._file = None
        if path is None:
            return
        content = path.read_bytes() if path.exists() else b""
        if len(content) < size:
            raise ValueError(
                f"{path} must have at least {size} bytes, got {len(content)}: it was changed, begin a new run"
            )
        self.lines = _parsed(content[:size], path)
        self._file = path.open("ab")
        self._file.truncate(size)

    def append(self, line: Line) -> None:
        self.lines.append(line)
        if self._file is not None:
            self._file.write(json.dumps(line).encode() + b"\n")

    def secured(self) -> int:
        """How many bytes are on the disk for sure: all of them."""
        if self._file is None:
            return 0
        self._file.flush()
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _parsed(content: bytes, path: Path) -> list[Line]:
    try:
        return [dict(json.loads(line)) for line in content.splitlines()]
    except (ValueError, TypeError) as problem:
        raise ValueError(f"{path} is damaged ({problem}): begin a new run") from None


def _inside(path: Path) -> list[Path]:
    if not path.is_dir():
        raise ValueError(f"{path} must be a folder, got a file: choose another")
    return list(path.iterdir())
