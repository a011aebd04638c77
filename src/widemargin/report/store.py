"""Results of studies: a folder for each, named by the key of the parts that decide it, written whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from widemargin.files import Absent, Damaged, read_json, read_tensors, unwritten, write_json, write_tensors
from widemargin.runs.keys import folder_of, key_of
from widemargin.runs.run_yaml import write_description
from widemargin.runs.serialize import to_dict

Arrays = Mapping[str, NDArray[Any]]
Parts = tuple[object, ...]
"""All that decides a result, for instance a judge and a run."""


@dataclass(frozen=True, eq=False)
class Stored:
    numbers: Mapping[str, Any]
    arrays: Arrays


@dataclass(frozen=True)
class Store:
    """run.yaml says what decides a result, numbers.json and arrays.safetensors what came out, weights.safetensors what
    was trained.  Reading any of them runs no code."""

    root: Path

    def folder(self, parts: Parts) -> Path:
        return folder_of(self.root, *parts)

    def __contains__(self, parts: Parts) -> bool:
        return (self.folder(parts) / "numbers.json").is_file()

    def save(self, parts: Parts, numbers: Mapping[str, Any], arrays: Arrays, weights: Arrays) -> None:
        """All files appear at once: a crash leaves a folder behind that is never read, and removed the next time."""
        key = key_of(*parts)
        partial = self.root / f".partial-{key}-{os.getpid()}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            for left in self.root.glob(f".partial-{key}-*"):
                if not _at_work(left):
                    shutil.rmtree(left, ignore_errors=True)
            partial.mkdir()
        except OSError as problem:
            raise unwritten(self.root, problem) from None
        try:
            write_description(partial / "run.yaml", {"key": key, "result": [to_dict(part) for part in parts]})
            write_json(partial / "numbers.json", numbers, allow_nan=True)
            for name, content in (("arrays", arrays), ("weights", weights)):
                tensors = {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in content.items()}
                write_tensors(partial / f"{name}.safetensors", tensors, {"key": key})
            os.rename(partial, self.root / key)
        except OSError as problem:
            # A key names all that decides its numbers: another process has stored the same.
            if parts not in self:
                raise unwritten(self.root / key, problem) from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def load(self, parts: Parts) -> Stored:
        folder = self.folder(parts)
        if parts not in self:
            raise Absent(f"nothing is stored in {folder}: run the study first")
        return read_stored(folder)


def read_stored(folder: Path) -> Stored:
    try:
        return Stored(read_json(folder / "numbers.json"), _arrays(folder / "arrays.safetensors"))
    except (OSError, ValueError, SafetensorError) as error:
        raise Damaged(f"{folder} is damaged ({error}): delete it and run the study again") from None


def _at_work(partial: Path) -> bool:
    """Is it being written by another process?"""
    process = int(partial.name.rpartition("-")[2])
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return process != os.getpid()


def _arrays(path: Path) -> Arrays:
    """A file from before there were checksums is taken as it is."""
    with safe_open(path, framework="np") as file:
        if file.metadata() is None:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return {name: value.numpy() for name, value in read_tensors(path)[0].items()}
