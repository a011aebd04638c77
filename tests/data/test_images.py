"""Images by name: where they are looked for, how they are divided, and what is said when something is wrong."""

import sys
from pathlib import Path

import pytest
import torch

from made_files import classes, idx_bytes, pictures, write_cifar10, write_cifar100, write_idx, write_svhn
from widemargin.data.images import ImageSet, image_sets

DIFFERS = "differs from the published"


@pytest.fixture(autouse=True)
def empty_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the files or the cache of the machine it runs on."""
    monkeypatch.setenv("WIDEMARGIN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_sets(tmp_path: Path, name: str, zipped: bool) -> None:
    write_idx(tmp_path / "data" / name, train=600, test=100, zipped=zipped)
    with pytest.warns(UserWarning, match=DIFFERS) as said:
        parts = ImageSet(name).draw()
    assert len(said) == 1
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [550, 50, 100]
    assert parts.test.origin.place == str(tmp_path / "data" / name)
    assert parts.test.origin.official is False
    points, labels = parts.test[torch.arange(100)]
    assert torch.equal(points, torch.from_numpy(pictures(100, 1, 28, seed=1)).float() / 255)
    assert torch.equal(points, parts.test.points)
    assert labels.tolist() == [k % 10 for k in range(100)]
    assert parts.test.classes == 10


@pytest.mark.filterwarnings(f"ignore:.*{DIFFERS}")
def test_cifar_and_svhn(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "data/cifar-10-batches-py")
    write_cifar100(tmp_path / "data/cifar-100-python")
    write_svhn(tmp_path / "data")
    counts = {}
    for name in ("cifar-10", "cifar-100", "svhn"):
        parts = ImageSet(name, most_tests=45).draw()
        counts[name] = [len(part) for part in (parts.train, parts.validation, parts.test)]
        points, labels = parts.train[torch.tensor([3, 0])]
        assert points.dtype == torch.float32
        assert points.shape == (2, 3, 32, 32)
        assert labels.dtype == torch.int64
        assert parts.train.stored.dtype == torch.uint8
    assert counts == {"cifar-10": [180, 20, 40], "cifar-100": [360, 40, 45], "svhn": [669, 63, 45]}


@pytest.mark.filterwarnings(f"ignore:.*{DIFFERS}")
def test_a_description_decides_what_is_drawn(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "data/cifar-10-batches-py")
    few = ImageSet("cifar-10", fraction=0.05, seed=7)
    assert eval(repr(few)) == few
    assert len(few.draw().train) == 10
    assert torch.equal(few.draw().train.stored, few.draw().train.stored)
    assert not torch.equal(few.draw().train.stored, ImageSet("cifar-10", fraction=0.05, seed=8).draw().train.stored)


def test_digits_need_no_file() -> None:
    parts = ImageSet("digits").draw()
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [1300, 137, 360]
    assert parts.train.points.shape == (1300, 1, 8, 8)
    assert parts.train.points.min() == 0
    assert parts.train.points.max() == 1
    assert parts.train.origin.official is None


def test_moving_keeps_bytes() -> None:
    test = ImageSet("digits").draw().test
    assert torch.equal(test.to("cpu").stored, test.stored)
    assert test.to("cpu").white == 16


def test_svhn_says_that_it_is_not_for_commerce() -> None:
    assert "non-commercial" in ImageSet("svhn").terms
    assert image_sets()["svhn"] == ImageSet("svhn").terms
    assert ImageSet("cifar-10").terms == ""
    assert list(image_sets()) == ["fashion-mnist", "mnist", "svhn", "cifar-10", "cifar-100", "digits"]


def test_a_label_that_cannot_be_is_refused(tmp_path: Path) -> None:
    write_idx(tmp_path / "data/mnist")
    (tmp_path / "data/mnist/t10k-labels-idx1-ubyte.gz").write_bytes(idx_bytes(classes(100, of=11)))
    with pytest.raises(ValueError, match=r"data/mnist: labels must be in 0\.\.9 for 10 classes, got 0\.\.10"):
        ImageSet("mnist").draw()


def test_a_file_of_nothing_is_refused(tmp_path: Path) -> None:
    write_idx(tmp_path / "data/mnist", test=0)
    with pytest.raises(ValueError, match=r"data/mnist: a dataset .* at least one example, got none"):
        ImageSet("mnist").draw()


def test_a_cut_file_is_one_sentence_and_no_warning(tmp_path: Path) -> None:
    folder = tmp_path / "data/cifar-10-batches-py"
    write_cifar10(folder)
    (folder / "data_batch_3").write_bytes((folder / "data_batch_3").read_bytes()[:9999])
    with pytest.raises(ValueError, match=r"data_batch_3 must hold a CIFAR batch .* cut off .* delete or replace it$"):
        ImageSet("cifar-10").draw()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "imagenet"}, r"ImageSet\.name must be one of fashion-mnist, .*, got 'imagenet'"),
        ({"name": "digits", "fraction": 0.0}, r"ImageSet\.fraction must be in \(0, 1\], got 0"),
        ({"name": "digits", "fraction": 1.5}, r"ImageSet\.fraction must be in \(0, 1\], got 1\.5"),
        ({"name": "digits", "seed": -1}, r"ImageSet\.seed must be a whole number >= 0, got -1"),
        ({"name": "digits", "most_tests": 0}, r"ImageSet\.most_tests must be at least 1, got 0"),
    ],
)
def test_wrong_descriptions_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageSet(**wrong)  # type: ignore[arg-type]


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(
        ValueError, match="the digits needs scikit-learn, which is not installed: pip install scikit-learn"
    ):
        ImageSet("digits").draw()
