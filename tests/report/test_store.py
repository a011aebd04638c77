import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from disks import full_disk
from widemargin.report.store import Store, read_stored
from widemargin.runs.keys import key_of
from widemargin.runs.run_yaml import is_run, read_description

PARTS = ("a study", 3)
KEY = key_of(*PARTS)
ARRAYS = {"margin": np.array([0.1, -0.2]), "lead": np.eye(3, dtype=np.float32)}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    assert ("udp", 3) not in store
    store.save(("udp", 3), {"errors": 2}, ARRAYS, {})
    assert ("udp", 3) in store
    found = store.load(("udp", 3))
    assert found.numbers == {"errors": 2}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found.arrays[name], array)
    described = read_description(store.folder(("udp", 3)) / "run.yaml")
    assert described == {"version": 2, "key": key_of("udp", 3), "result": ["udp", 3]}
    assert not is_run(described)


def test_what_is_stored_is_never_overwritten(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(PARTS, {"errors": 2}, ARRAYS, {})
    store.save(PARTS, {"errors": 0}, ARRAYS, {})
    assert store.load(PARTS).numbers == {"errors": 2}
    assert [path.name for path in tmp_path.iterdir()] == [KEY]


def test_a_missing_or_damaged_result_is_one_sentence(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(ValueError, match=r"nothing is stored in .*: run the study first"):
        store.load(PARTS)
    store.save(PARTS, {}, ARRAYS, {})
    (tmp_path / KEY / "arrays.safetensors").write_bytes(b"cut short")
    with pytest.raises(ValueError, match=r"is damaged .*: delete it and run the study again"):
        store.load(PARTS)


def test_no_number_can_change_unseen(tmp_path: Path) -> None:
    store, chance = Store(tmp_path), random.Random(0)
    store.save(PARTS, {"errors": 2, "worst": float("nan")}, ARRAYS, {})
    for name in ("numbers.json", "arrays.safetensors"):
        path = tmp_path / KEY / name
        whole = path.read_bytes()
        for _ in range(60):
            place = chance.randrange(len(whole))
            path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << chance.randrange(8))]) + whole[place + 1 :])
            try:
                found = store.load(PARTS)
            except ValueError:
                continue
            assert found.numbers["errors"] == 2
            assert all((found.arrays[name] == array).all() for name, array in ARRAYS.items())
        path.write_bytes(whole)


def test_results_from_before_there_were_checksums_can_be_read(tmp_path: Path) -> None:
    (tmp_path / KEY).mkdir()
    (tmp_path / KEY / "numbers.json").write_text('{"errors": 2}\n')
    save_file(ARRAYS, tmp_path / KEY / "arrays.safetensors")
    found = Store(tmp_path).load(PARTS)
    assert found.numbers == {"errors": 2}
    assert all((found.arrays[name] == array).all() for name, array in ARRAYS.items())


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(ValueError, match=r"cannot be written \(File too large\): make room"):
        Store(tmp_path).save(PARTS, {"errors": 2}, ARRAYS, {})
    assert not list(tmp_path.iterdir())


SAVE_FOR_EVER = """
import numpy as np, sys
from pathlib import Path
from widemargin.report.store import Store
store = Store(Path(sys.argv[1]))
for i in range(100_000):
    store.save((i, sys.argv[2]), {"i": i}, {"a": np.full(20_000, i)}, {})
    print(i, flush=True)
"""


def test_a_killed_writer_leaves_whole_results_only(tmp_path: Path) -> None:
    for attempt in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", SAVE_FOR_EVER, str(tmp_path), str(attempt)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        for _ in range(4):
            writer.stdout.readline()
        time.sleep(0.013)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        keys = [path.name for path in tmp_path.iterdir() if not path.name.startswith(".partial-")]
        assert keys
        for key in keys:
            found = read_stored(tmp_path / key)
            assert (found.arrays["a"] == found.numbers["i"]).all()


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    store = Store(tmp_path)
    # No process has such a number.
    killed, at_work = (tmp_path / f".partial-{KEY}-{process}" for process in (2**22 + 1, 1))
    for folder in (killed, at_work):
        folder.mkdir()
        (folder / "run.yaml").write_text("half")
    store.save(PARTS, {"x": 1}, {}, {})
    assert not killed.exists()
    assert at_work.exists()
    assert store.load(PARTS).numbers == {"x": 1}
