import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from small_audits import CONFIG, audited, target
from widemargin.auditing.chunks import check_saved, pieces
from widemargin.auditing.clock import Clock
from widemargin.auditing.result import Audit
from widemargin.files import read_tensors, write_tensors

pytestmark = pytest.mark.usefixtures("one_thread")


def test_files_of_a_version_that_recorded_less_are_read(whole: Audit, tmp_path: Path) -> None:
    audited(tmp_path)
    place = tmp_path / target().key(CONFIG)
    chunk = sorted(place.glob("0*.safetensors"))[1]
    tensors, note = read_tensors(chunk)
    write_tensors(chunk, {name: values for name, values in tensors.items() if name != "tried"}, note)
    again = audited(tmp_path)
    assert "tried" not in again.points
    assert again.broken_by == whole.broken_by
    assert [one.run_on is None for one in again.contributions] == [False, True, True, True, False]


def test_a_chunk_holds_the_rows_it_must(whole: Audit, tmp_path: Path) -> None:
    """One of another config, one by another name, and one flipped bit."""
    audited(tmp_path)
    place = tmp_path / target().key(CONFIG)
    chunk = sorted(place.glob("0*.safetensors"))[0]
    good = chunk.read_bytes()
    other = place.with_name("other")
    shutil.copytree(place, other)
    with pytest.raises(ValueError, match="holds points of another audit: delete it, and the same command"):
        check_saved(other, CONFIG, 60)
    for damage, word in (
        (lambda: chunk.rename(place / "000999.safetensors"), "another audit"),
        (lambda: chunk.write_bytes(good[:-3] + bytes([good[-3] ^ 4]) + good[-2:]), "its checksum differs"),
    ):
        damage()
        with pytest.raises(ValueError, match=f"{word}.*: delete it, and the same command measures"):
            audited(tmp_path)
        (place / "000999.safetensors").unlink(missing_ok=True)
        chunk.unlink(missing_ok=True)
        again = audited(tmp_path)
        assert again.n == 24
        assert np.array_equal(again.points["margin"], whole.points["margin"])


def test_a_budget_is_filled_with_as_many_points_as_it_holds(tmp_path: Path) -> None:
    now = 0.0
    rows = torch.arange(100)

    def taken(budget: float | None, seconds: float) -> list[int]:
        nonlocal now
        clock, sizes = Clock(budget, now, lambda: now), list[int]()
        for piece in pieces(rows.split(50), tmp_path, clock, 0.9 * seconds):
            sizes.append(len(piece))
            now += seconds * len(piece)
        return sizes

    assert taken(None, 1.0) == [50, 50]
    assert taken(0.0, 1.0) == [1], "which the clock will end"
    assert taken(20.0, 1.0) == [4, 8, 8]
    assert taken(22.0, 1.0) == [4, 8, 10]
    assert taken(1_000.0, 1.0) == [4, 8, 16, 22, 50]
