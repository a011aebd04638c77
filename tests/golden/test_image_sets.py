"""The real files, where this machine has them: counts, checksums and what is known of their content."""

import pytest
import torch

from widemargin.data import images
from widemargin.data.dataset import Dataset
from widemargin.data.formats import cifar10
from widemargin.data.images import ImageSet


def test_fashion_mnist() -> None:
    _need("FASHION_MNIST")
    parts = ImageSet("fashion-mnist").draw()
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [55_000, 5_000, 10_000]
    assert parts.train.labels.bincount().tolist() == [5_500] * 10
    assert parts.test.labels[:4].tolist() == [9, 2, 1, 1]
    assert parts.test.origin.official
    assert _mean(parts.train) == pytest.approx([0.2860], abs=5e-4)


def test_cifar_10() -> None:
    _need("CIFAR_10")
    parts = ImageSet("cifar-10", fraction=0.05).draw()
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [2_500, 5_000, 10_000]
    assert parts.train.labels.bincount().tolist() == [250] * 10
    assert parts.test.labels[:4].tolist() == [3, 8, 8, 0]
    assert parts.train.origin.official
    assert _mean(parts.validation) == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-3)
    # Neighbours are alike only if rows, columns and channels lie where they should.
    points = parts.test.points[:1000]
    assert points.diff(dim=3).abs().mean() < 0.07
    assert points.diff(dim=2).abs().mean() < 0.07


def test_cifar_100() -> None:
    _need("CIFAR_100")
    parts = ImageSet("cifar-100", fraction=0.1).draw()
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [5_000, 5_000, 10_000]
    assert parts.test.classes == 100
    assert parts.test.labels.bincount().tolist() == [100] * 100
    assert parts.test.labels[:4].tolist() == [49, 33, 72, 51]
    assert parts.test.origin.official


@pytest.mark.filterwarnings("ignore:.*differs from the published SVHN")
def test_svhn() -> None:
    _need("SVHN")
    parts = ImageSet("svhn").draw()
    whole = len(parts.train) + len(parts.validation)
    assert len(parts.validation) == round(whole * 6_257 / 73_257)
    assert len(parts.test) <= 10_000
    assert parts.test.stored.shape[1:] == (3, 32, 32)
    counts = parts.train.labels.bincount(minlength=10)
    # Digits of house numbers: 1 is the most frequent, and 0, written as 10 in the file, is there.
    assert counts.argmax() == 1
    assert counts.min() > 0.05 * len(parts.train)


def _need(name: str) -> None:
    if getattr(images, name).local_folder() is None:
        pytest.skip(f"{name} is not on this machine")


def _mean(part: Dataset) -> list[float]:
    pixels = part.stored.double() / part.white
    return [float(value) for value in pixels.mean((0, 2, 3))]


def test_batches_are_bytes_over_255() -> None:
    _need("CIFAR_10")
    test = images.CIFAR_10.read(cifar10, tuple(range(10)))[1]
    rows = torch.tensor([9_999, 0, 0])
    assert torch.equal(test[rows][0], test.stored[rows].float() / 255)
