"""Where do results live?  One folder for each key, written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Stored:
    numbers: Mapping[str, Any]
    arrays: Arrays


@dataclass(frozen=True)
class Store:
    """run.yaml says what was done, numbers.json and arrays.safetensors what came out, weights.safetensors what was
    trained.  Reading any of them runs no code."""

    root: Path

    def __contains__(self, key: str) -> bool:
        return (self.root / key / "numbers.json").is_file()

    def save(
        self, key: str, description: Mapping[str, Any], numbers: Mapping[str, Any], arrays: Arrays, weights: Arrays
    ) -> None:
        """All files appear at once: a crash leaves nothing behind but a folder that is never read."""
        self.root.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=self.root))
        (partial / "run.yaml").write_text(yaml.safe_dump(dict(description), sort_keys=False, width=1000))
        (partial / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n")
        for name, content in (("arrays", arrays), ("weights", weights)):
            save_file({k: np.ascontiguousarray(v) for k, v in content.items()}, partial / f"{name}.safetensors")
        try:
            os.rename(partial, self.root / key)
        except OSError:
            # A key names all that decides its numbers: whoever came first has stored the same.
            shutil.rmtree(partial)
            if key not in self:
                raise

    def load(self, key: str) -> Stored:
        folder = self.root / key
        if key not in self:
            raise ValueError(f"nothing is stored in {folder}: run the study first")
        try:
            numbers = json.loads((folder / "numbers.json").read_text())
            arrays = load_file(folder / "arrays.safetensors")
        except (OSError, ValueError, SafetensorError) as error:
            raise ValueError(f"{folder} is damaged ({error}): delete it and run the study again") from error
        return Stored(numbers, arrays)
