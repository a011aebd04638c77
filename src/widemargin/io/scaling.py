"""The scaling of a run's logits, in a file beside its weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from widemargin.files import Damaged, read_json, write_json
from widemargin.runs.folder import RunFolder
from widemargin.uncertainty.scaling import Scaling

NAME = "scaling.json"


def file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def write_scaling(folder: Path, scaling: Scaling, fitted: Mapping[str, Any]) -> Path:
    """With what is known of the fit; of a run `weights` and `digest` say for which of its weights it is."""
    write_json(folder / NAME, {**scaling.to_dict(), **fitted})
    return folder / NAME


def fitted_to(used: Path) -> dict[str, str]:
    """What names these weights in the file."""
    return {"weights": used.stem, "digest": file_digest(used)}


def run_scaling(folder: RunFolder, used: Path) -> Scaling | None:
    """That of these weights of a run; None if there is none, or one of the run's other weights."""
    path = folder.path / NAME
    if not path.exists():
        return None
    again = f"`widemargin calibrate {folder.path} --fit temperature` fits it again; or delete it"
    try:
        content = read_json(path)
        scaling, weights, digest = Scaling.from_dict(content), content["weights"], content["digest"]
    except Damaged as problem:
        raise Damaged(f"{problem}: {again}") from None
    except (KeyError, TypeError, ValueError) as problem:
        raise Damaged(f"{path} is damaged ({problem!r}): {again}") from None
    if weights != used.stem:
        return None
    if digest != file_digest(used):
        raise ValueError(f"{path} was fitted to other weights than those in {used}: {again}")
    return scaling
