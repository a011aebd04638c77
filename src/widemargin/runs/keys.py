"""Keys: short names for whatever a set of parts decides, by which runs and results are stored and found again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from widemargin.runs import version_1
from widemargin.runs.serialize import to_dict

VERSION = 2
"""Of run.yaml and of keys; `version_1` knows how both were before."""
NUMBERS = {"": 2, "ResNetSpec": 2}
"""Counted up whenever the same parts give other numbers: "" for all, a name for the runs with that part alone.

"": 2 keeps the last, smaller batch of an epoch.  ResNetSpec: 2 has no normalisation after the last stage, bypasses that
take the raw input, and He's linear layer.
"""


def key_of(*parts: object, numbers: Mapping[str, int] = NUMBERS) -> str:
    """A name for whatever is decided by these parts; what is no part is taken by its repr."""
    text = json.dumps([to_dict(part) for part in parts])
    counted = {name: number for name, number in numbers.items() if not name or f'"{name}": ' in text}
    return hashlib.sha256(f"{VERSION} {json.dumps(counted)} {text}".encode()).hexdigest()[:16]


def older_keys(*parts: object, numbers: Mapping[str, int] = NUMBERS) -> tuple[str, ...]:
    """What versions before this one called it, if they would have given the same numbers."""
    return version_1.keys_of(*parts) if numbers == version_1.NUMBERS else ()


def folder_of(root: Path, *parts: object) -> Path:
    """Where something is stored below a folder, or will be; what an earlier version stored keeps its name."""
    path = root / key_of(*parts)
    if path.exists():
        return path
    return next((root / key for key in older_keys(*parts) if (root / key).exists()), path)
