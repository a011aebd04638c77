import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from safetensors.torch import save_file

from small_runs import PLAN, TRIAL, files, same
from widemargin import Updates
from widemargin.data.columns import CategoryColumn, NumberColumn
from widemargin.data.schema import Schema
from widemargin.files import Damaged
from widemargin.files import read_tensors as read
from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import prepare
from widemargin.runs.runner import run_training
from widemargin.runs.stop import AtUpdate


def test_files_change_nothing(tmp_path: Path) -> None:
    inside, outside = run_training(prepare(TRIAL), RunFolder(tmp_path / "a")), run_training(prepare(TRIAL))
    assert same(inside.network, outside.network)
    assert same(inside.best, outside.best)
    assert (inside.records, inside.figures) == (outside.records, outside.figures)


def test_a_folder_is_for_one_run(tmp_path: Path) -> None:
    trial, folder = replace(TRIAL, plan=replace(PLAN, length=Updates(2))), RunFolder(tmp_path / "a")
    run_training(prepare(trial), folder)
    with pytest.raises(ValueError, match=f"holds another run, {trial.key}, this one is"):
        run_training(prepare(replace(trial, seed=1)), folder)
    with FileLock(folder.path / ".lock"), pytest.raises(ValueError, match="is being trained by another process"):
        run_training(prepare(trial), folder)
    other = tmp_path / "b"
    other.mkdir()
    (other / "thesis.tex").touch()
    with pytest.raises(ValueError, match="must be empty or hold this run, got other files"):
        run_training(prepare(trial), RunFolder(other))
    with pytest.raises(ValueError, match="must be a folder, got a file"):
        run_training(prepare(trial), RunFolder(other / "thesis.tex"))
    task = prepare(trial)
    with pytest.raises(ValueError, match="the data must be as it was when the run"):
        run_training(replace(task, description={**task.description, "data": {"rows": 3}}), folder)


def as_before_checksums(folder: RunFolder) -> None:
    """As files were written before they had checksums, and before a checkpoint remembered the records."""
    folder.description.write_text(folder.description.read_text().partition("\n")[2])
    figures = folder.read_figures()
    if figures is not None:
        folder.figures.write_text(json.dumps(figures, indent=1) + "\n")
    for path in (folder.checkpoint, folder.best, folder.last):
        tensors, note = read(path)
        if "more" in note:
            note["more"] = {name: note["more"][name] for name in ("best", "records")}
        kept = {name: value for name, value in tensors.items() if not name.startswith("more/")}
        total = 0
        for name in sorted(kept):
            total = zlib.crc32(kept[name].flatten().view(torch.uint8).numpy().data, zlib.crc32(name.encode(), total))
        save_file(kept, path, {"widemargin": json.dumps({**note, "checksum": total})})


def test_a_run_from_before_there_were_checksums_goes_on(tmp_path: Path) -> None:
    whole, old = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "old")
    run_training(prepare(TRIAL), whole)
    run_training(prepare(TRIAL), old, until=AtUpdate(20))
    as_before_checksums(old)
    assert old.lines()[-1]["update"] == 20
    run_training(prepare(TRIAL), old)
    new = files(whole)
    new[old.description.name] = new[old.description.name].partition(b"\n")[2]
    assert files(old) == new
    as_before_checksums(whole)
    before = files(whole)
    run_training(prepare(TRIAL), whole)
    assert files(whole) == before
    whole.records.write_bytes(b"")
    with pytest.raises(ValueError, match=r"records.jsonl must have at least \d+ bytes, got 0: delete checkpoint"):
        run_training(prepare(TRIAL), whole)


def test_a_schema_is_kept_and_written_anew(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.read_schema() is None
    schema = Schema("label", ("a", "b"), (NumberColumn("x", 0.0, 1.0, 0.5, 0.5, 0.5), CategoryColumn("c", ("u", "v"))))
    folder.save_schema(schema)
    assert folder.read_schema() == schema
    good = folder.schema.read_text()
    folder.schema.write_text(good.replace("0.5", "0.7"))
    with pytest.raises(Damaged, match=r"schema.json is damaged .*: `widemargin resume .*` writes it again"):
        folder.read_schema()
    folder.save_schema(schema)
    assert folder.schema.read_text() == good
