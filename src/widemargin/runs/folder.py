"""The folder of a run: what it is, what happened, and what it takes to go on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from widemargin.data.schema import Schema
from widemargin.data.schema_check import checked_schema
from widemargin.files import (
    Damaged,
    read_json,
    read_note,
    read_tensors,
    sealed_text,
    unwritten,
    write_json,
    write_whole,
)
from widemargin.runs.keys import folder_of
from widemargin.runs.prepare import PreparedRun
from widemargin.runs.run import Run
from widemargin.runs.run_yaml import parsed, read_description, write_description

Line = dict[str, Any]
"""One record: an update's loss, or a validation's figures."""


@dataclass(frozen=True)
class RunFolder:
    """run.yaml says what is done, records.jsonl what happened, checkpoint.safetensors holds all it takes to go on,
    last and best.safetensors the weights, figures.json what came out on the test part, schema.json what the columns of
    a table are.

    Each says so when it is not as it was written.  All but the checkpoint and the best weights can be made again from
    the checkpoint, and are, by going on."""

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

    @property
    def schema(self) -> Path:
        return self.path / "schema.json"

    @classmethod
    def of(cls, run: Run, root: Path) -> RunFolder:
        """Where this run is, or will be, below a folder of runs; one that an earlier version began keeps its name."""
        return cls(folder_of(root, run))

    def continued(self, prepared: PreparedRun) -> PreparedRun:
        """The same under the key that is in the files here, if an earlier version began it."""
        key = (self.begun() or {}).get("key")
        if key not in prepared.older_keys:
            return prepared
        return replace(prepared, key=key, description={**prepared.description, "key": key})

    @contextmanager
    def claimed(self, description: Mapping[str, Any]) -> Iterator[None]:
        """For one process alone, and for this run alone; a process that is killed loses the claim."""
        self._check_free(description)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock")
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(f"{self.path} is being trained by another process: wait for it, or stop it") from None
        except OSError as problem:
            raise unwritten(self.path, problem) from None
        with lock:
            begun = self._check_free(description)
            if not self.description.exists():
                # What the checkpoint knows is what there was.
                write_description(self.description, begun if begun is not None and "run" in begun else description)
            yield

    def _check_free(self, description: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The run that is here already, which must be this one."""
        begun = self.begun()
        if begun is None:
            return None
        if begun.get("key") != description["key"]:
            if "fitted" in description:
                raise ValueError(f"{self.path} holds another run, {_other_fit(begun, description)}")
            raise ValueError(
                f"{self.path} holds another run, {begun.get('key')}, this one is {description['key']}: choose "
                "another --out, or resume that one by `widemargin resume`"
            )
        if begun.get("data", description["data"]) != description["data"]:
            raise ValueError(
                f"the data must be as it was when the run in {self.path} began, but it has changed: begin a "
                "new run in another folder"
            )
        return begun

    def begun(self) -> Mapping[str, Any] | None:
        """The run that is here, if only by what its checkpoint says."""
        if self.description.exists():
            return read_description(self.description)
        if self.checkpoint.exists():
            try:
                note = read_note(self.checkpoint)
            except Damaged as problem:
                raise Damaged(f"{self.description} is missing, and {problem}: {_ANEW_WITH_TRAIN}") from None
            text = dict(note.get("more", {})).get("description")
            return {"key": note.get("key")} if text is None else parsed(str(text), self.checkpoint)
        if self.path.exists() and any(not inside.name.startswith(".") for inside in _inside(self.path)):
            raise ValueError(f"{self.path} must be empty or hold this run, got other files: choose another folder")
        return None

    def restore_description(self) -> None:
        """Write run.yaml as it was, if it is missing: the checkpoint knows it."""
        if self.description.exists() or not self.checkpoint.exists():
            return
        try:
            text = read_tensors(self.checkpoint)[1]["more"]["description"]
        except Damaged as problem:
            raise Damaged(f"{self.description} is missing, and {problem}: {_ANEW_WITH_TRAIN}") from None
        except (KeyError, TypeError):
            raise ValueError(
                f"{self.description} is missing, and {self.checkpoint} is too old to know it: repeat the command that "
                f"began the run, `widemargin train ... --out {self.path}`, which resumes from the checkpoint"
            ) from None
        write_whole(self.description, sealed_text(text).encode())

    def save_schema(self, schema: Schema) -> None:
        """Unless it is here already: it follows from the data, which is as it was."""
        with suppress(Damaged, ValueError):
            if self.read_schema() == schema:
                return
        write_json(self.schema, schema.to_dict())

    def read_schema(self) -> Schema | None:
        """None for runs on anything but a table."""
        try:
            return checked_schema(read_json(self.schema))
        except FileNotFoundError:
            return None
        except ValueError as problem:
            said = str(problem) if isinstance(problem, Damaged) else f"{self.schema} is damaged ({problem})"
            raise Damaged(f"{said}: `widemargin resume {self.path}` writes it again") from None

    def save_figures(self, figures: Mapping[str, Any]) -> None:
        write_json(self.figures, figures)

    def read_figures(self) -> Mapping[str, Any] | None:
        """None until the run is done."""
        try:
            figures = read_json(self.figures)
        except FileNotFoundError:
            return None
        except Damaged as problem:
            raise Damaged(f"{problem}: `widemargin resume {self.path}` evaluates the test split again") from None
        return figures

    def lines(self) -> list[Line]:
        """All records that the checkpoint vouches for; of a run that has none, all whole ones."""
        content = self.records.read_bytes() if self.records.exists() else b""
        more = dict(read_note(self.checkpoint).get("more", {})) if self.checkpoint.exists() else {}
        try:
            if "digest" not in more:
                return _parsed(content.rpartition(b"\n")[0], self.records)
            if _digest(content[: more["records"]]) != more["digest"]:
                raise Damaged(f"{self.records} is missing or damaged")
            return _parsed(content[: more["records"]], self.records)
        except Damaged as problem:
            raise Damaged(f"{problem}: `widemargin resume {self.path}` writes it again") from None


def best_again(folder: RunFolder) -> str:
    """How to go on where the best weights are lost."""
    return (
        f"`widemargin export {folder.path} --weights last` still has the last ones; to have the best again, delete "
        f"{folder.checkpoint}, and `widemargin resume {folder.path}` starts over and ends with the same result"
    )


_ANEW_WITH_TRAIN = (
    "nothing here says what was trained, so start it over with `widemargin train` in another folder, to the same result"
)


class Records:
    """What happened so far, in memory and in a file that grows by a line at a time.

    What came after the last checkpoint is cut off, to happen again.  A checkpoint remembers all records, so that the
    file can be written anew if it is not as it was.
    """

    def __init__(self, path: Path | None, remembered: Mapping[str, Any] | None) -> None:
        self.lines: list[Line] = []
        self._path, self._file, self._digest = path, None, hashlib.sha256()
        if path is None:
            return
        content = b""
        if remembered is not None:
            self.lines, content = _remembered(path, remembered)
        self._digest.update(content)
        if not path.exists() or path.read_bytes()[: len(content)] != content:
            write_whole(path, content)
        try:
            self._file = path.open("ab")
            self._file.truncate(len(content))
        except OSError as problem:
            raise unwritten(path, problem) from None

    def append(self, line: Line) -> None:
        self.lines.append(line)
        if self._file is not None and self._path is not None:
            written = _encoded(line)
            self._digest.update(written)
            try:
                self._file.write(written)
            except OSError as problem:
                raise unwritten(self._path, problem) from None

    def secured(self) -> dict[str, Any]:
        """Forced to the disk; and what a checkpoint must remember of them."""
        if self._file is None or self._path is None:
            return {}
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as problem:
            raise unwritten(self._path, problem) from None
        losses = [line["loss"] for line in self.lines if "loss" in line]
        return {
            "records": os.fstat(self._file.fileno()).st_size,
            "digest": self._digest.hexdigest()[:32],
            "losses": torch.tensor(losses, dtype=torch.float64),
            "validations": [line for line in self.lines if "loss" not in line],
        }

    def close(self) -> None:
        if self._file is not None:
            # Whatever could not be written was not remembered by a checkpoint either.
            with suppress(OSError):
                self._file.close()


def _remembered(path: Path, more: Mapping[str, Any]) -> tuple[list[Line], bytes]:
    """Records up to a checkpoint, from what it says of them; an older one says only how many bytes they have."""
    if "losses" in more:
        validations: dict[int, list[Line]] = {}
        for line in more["validations"]:
            validations.setdefault(line["update"], []).append(line)
        lines = [
            line
            for update, loss in enumerate(more["losses"].tolist(), 1)
            for line in ({"update": update, "loss": loss}, *validations.get(update, ()))
        ]
        return lines, b"".join(map(_encoded, lines))
    content = path.read_bytes() if path.exists() else b""
    if len(content) < more["records"]:
        raise Damaged(
            f"{path} must have at least {more['records']} bytes, got {len(content)}: delete checkpoint.safetensors "
            "beside it, and the run starts over and ends with the same result"
        )
    return _parsed(content[: more["records"]], path), content[: more["records"]]


def _encoded(line: Line) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _parsed(content: bytes, path: Path) -> list[Line]:
    try:
        return [dict(json.loads(line)) for line in content.splitlines()]
    except (ValueError, TypeError, RecursionError) as problem:
        raise Damaged(f"{path} is damaged ({problem})") from None


def _inside(path: Path) -> list[Path]:
    if not path.is_dir():
        raise ValueError(f"{path} must be a folder, got a file: choose another")
    return list(path.iterdir())


def _other_fit(begun: Mapping[str, Any], description: Mapping[str, Any]) -> str:
    """In what `wm.fit` was called otherwise before, and what to do."""
    before, now = begun.get("fitted") or {}, description["fitted"]
    differs = [name for name in now if before.get(name) != now[name]]
    if begun.get("data") != description["data"]:
        differs.append("data")
    networks = [dict(fitted.get("network") or {}) for fitted in (before, now)]
    if not before:
        return "one that `wm.fit` did not begin: choose another folder, out=..."
    if differs == ["network"] and networks[0].get("own") == networks[1].get("own"):
        return (
            "one that began with other initial weights: make the network with the same ones, torch.manual_seed(0) "
            "before it, to go on, or choose another folder, out=..."
        )
    return f"one with other arguments ({', '.join(differs)}): choose another folder, out=..., or give those to go on"
