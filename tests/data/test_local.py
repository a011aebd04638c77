"""The user's own data in its parts, which are read alike."""

from pathlib import Path

import numpy as np
import pytest
import torch

from made_files import classes
from partly import KNOWN, ROWS, write_csv
from widemargin.data.checks import UNLABELLED
from widemargin.data.local import LocalData, SchemaData, SplitData, TableData, WholeFile
from widemargin.data.local_files import Npz, Table


def test_own_data_in_parts(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.arange(100.0)[:, None], y=classes(100, 4))
    own = LocalData(Npz(str(tmp_path / "own.npz")), validation=0.1, test=0.2, seed=3)
    assert eval(repr(own)) == own
    parts = own.draw()
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [70, 10, 20]
    assert torch.equal(parts.train.points, own.draw().train.points)
    assert parts.test.labels.bincount().tolist() == [5] * 4


def test_own_data_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("a,label\n" + "".join(f"{k},{k % 2}\n" for k in range(20)))
    assert len(LocalData(Table(str(tmp_path / "own.csv"))).draw().test) == 4


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_parts_measure_on_labels_alone_and_train_on_all() -> None:
    write_csv()
    parts = LocalData(Table("own.csv")).draw()
    assert [len(parts.train), len(parts.validation), len(parts.test)] == [42 + ROWS - KNOWN, 6, 12]
    assert parts.train.has_unlabelled
    assert int((parts.train.labels == UNLABELLED).sum()) == ROWS - KNOWN
    assert not parts.validation.has_unlabelled
    assert not parts.test.has_unlabelled
    assert UNLABELLED not in parts.test.labels
    whole = parts.train.labelled()
    assert len(whole) == 42


def test_bytes_and_numbers_of_images_have_one_scale(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 1, 4, 4), np.uint8)
    pixels[0, 0, 0, 0] = 255
    labels, files = np.arange(20) % 2, {}
    for name, array in (("bytes", pixels), ("numbers", pixels.astype(np.float32)), ("unit", pixels / 255)):
        np.savez(tmp_path / f"{name}.npz", x=array, y=labels)
        files[name] = Npz(str(tmp_path / f"{name}.npz"))
    assert len(SplitData(files["bytes"], test=files["unit"]).draw().test) == 20
    assert len(SplitData(files["numbers"], test=files["numbers"]).draw().test) == 20
    for train, test in (("bytes", "numbers"), ("numbers", "bytes")):
        with pytest.raises(ValueError, match=r"in .*bytes.npz and numbers from 0 to 255 in .*numbers.npz"):
            SplitData(files[train], test=files[test]).draw()


def test_rows_of_a_test_file_keep_their_numbers(tmp_path: Path) -> None:
    Path("own.csv").write_text("a,label\n" + "".join(f"{k},{k % 2}\n" for k in range(20)))
    Path("test.csv").write_text("a,label\n0,0\n1,\n2,1\n3,\n4,0\n")
    own, test = Table("own.csv"), Table("test.csv")
    schema = TableData(own).draw().train.schema
    assert schema is not None
    for data in (
        *(SplitData(own, test=test), TableData(own, test=test), TableData(own, validation=own, test=test)),
        *(SchemaData(test, schema, test=None), WholeFile(test, (0, 1))),
    ):
        drawn = data.draw()
        assert drawn.test_rows is not None
        assert drawn.test_rows.tolist() == [0, 2, 4], data
        assert len(drawn.test) == 3
    for data in (LocalData(own), SplitData(own), TableData(own, validation=own), SchemaData(own, schema)):
        assert data.draw().test_rows is None


def test_parts_of_their_own(tmp_path: Path) -> None:
    points = np.arange(60.0).reshape(30, 2)
    labels = np.array(["b", "a"])[np.arange(30) % 2]
    np.savez(tmp_path / "own.npz", x=points, y=labels, x_test=points[:3], y_test=np.array(["b", "b", "b"]))
    file, test = Npz(str(tmp_path / "own.npz")), Npz(str(tmp_path / "own.npz"), "x_test", "y_test")
    parts = SplitData(file, test=test).draw()
    assert [len(parts.train), len(parts.validation), len(parts.test)] == [27, 3, 3]
    # Classes are those of the training file, though the test has one alone.
    assert parts.test.names == parts.train.names == ("a", "b")
    assert parts.test.labels.tolist() == [1, 1, 1]
    both = SplitData(file, validation=test, test=test).draw()
    assert torch.equal(both.train.points, torch.from_numpy(points).float())
    assert WholeFile(test, ("a", "b")).draw().test.labels.tolist() == [1, 1, 1]
    np.savez(tmp_path / "strange.npz", x=points[:2], y=np.array(["a", "c"]))
    with pytest.raises(ValueError, match="must hold classes that training has, a, b, got 'c': leave out such rows"):
        SplitData(file, test=Npz(str(tmp_path / "strange.npz"))).draw()
    np.savez(tmp_path / "wide.npz", x=np.ones((2, 3)), y=np.array(["a", "b"]))
    with pytest.raises(ValueError, match=r"must have one shape, got \[2\] in .* and \[3\]"):
        SplitData(file, test=Npz(str(tmp_path / "wide.npz"))).draw()
