"""Published image datasets by name: Fashion-MNIST, MNIST, SVHN, CIFAR-10, CIFAR-100, digits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from widemargin.data.dataset import Dataset, Origin, Splits
from widemargin.data.download import Remote
from widemargin.data.formats import cifar10, cifar100, idx_pair, svhn
from widemargin.data.optional import import_optional
from widemargin.data.sources import Source
from widemargin.data.splits import at_most, published_splits
from widemargin.parts import part


@part
@dataclass(frozen=True)
class ImageSet:
    """A published image dataset by name, split as in the paper; equal values draw equal images.

    `fraction` is that of the training file to train on (0.05 is the low-data setting), `seed` decides the validation
    split.  Of more than `most_tests` test images, so many are drawn, the same ones for every seed.  SVHN is free for
    non-commercial use only.
    """

    name: str
    fraction: float = 1.0
    seed: int = 42
    most_tests: int = 10_000

    def __post_init__(self) -> None:
        if self.name not in _OFFERS:
            raise ValueError(f"ImageSet.name must be one of {', '.join(_OFFERS)}, got {self.name!r}")
        if not 0 < self.fraction <= 1:
            raise ValueError(f"ImageSet.fraction must be in (0, 1], got {self.fraction}")
        if self.seed < 0:
            raise ValueError(f"ImageSet.seed must be a whole number >= 0, got {self.seed}")
        if self.most_tests < 1:
            raise ValueError(f"ImageSet.most_tests must be at least 1, got {self.most_tests}")

    @property
    def terms(self) -> str:
        """The publishers' terms of use; empty where there are none in particular."""
        return _OFFERS[self.name].terms

    @property
    def published_rows(self) -> int:
        """The number of training images if the files are the official ones; no file is read."""
        offer = _OFFERS[self.name]
        return offer.training - offer.validation if self.fraction == 1 else round(self.fraction * offer.training)

    def undivided(self) -> Dataset:
        """The whole training file, in its order."""
        return _OFFERS[self.name].read()[0]

    def draw(self) -> Splits:
        """Read the files, after a download if they are not on this machine."""
        offer = _OFFERS[self.name]
        train, test = offer.read()
        # A file that is a subset of the official one keeps the published proportion.
        validation = round(len(train) * offer.validation / offer.training)
        return published_splits(train, at_most(test, self.most_tests, _TEST_SEED), validation, self.fraction, self.seed)


_TEST_SEED = 42


def image_sets() -> dict[str, str]:
    """Every name, and the terms of its publishers."""
    return {name: offer.terms for name, offer in _OFFERS.items()}


@dataclass(frozen=True)
class _Offer:
    """How to read the training and the test file, and the published size of the validation split."""

    read: Callable[[], tuple[Dataset, Dataset]]
    validation: int
    training: int
    terms: str = ""


def _digits() -> tuple[Dataset, Dataset]:
    """scikit-learn's 8 x 8 digits are one file: the last 360, by other writers, are the test split."""
    bunch = import_optional("sklearn.datasets", "scikit-learn", "the digits").load_digits()
    pixels = bunch.images.astype(np.uint8)[:, None]
    classes = bunch.target.astype(np.int64)
    digest = hashlib.sha256(pixels.tobytes() + classes.tobytes()).hexdigest()[:16]
    origin = Origin("scikit-learn", digest)
    whole = Dataset(torch.from_numpy(pixels), torch.from_numpy(classes), tuple(range(10)), origin, white=16)
    rows = torch.arange(len(whole))
    return whole.take(rows[:-360]), whole.take(rows[-360:])


def _idx_files(images: str, labels: str, part: str) -> tuple[tuple[str, str], ...]:
    return (f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)


def _remotes(address: str, **checksums: str) -> tuple[Remote, ...]:
    return tuple(Remote(address.format(name.replace("_", "-")), md5) for name, md5 in checksums.items())


FASHION_MNIST = Source(
    "Fashion-MNIST",
    ("fashion-mnist", "FashionMNIST/raw"),
    _idx_files("f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9", "train"),
    _idx_files("8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965", "t10k"),
    _remotes(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{}-ubyte.gz",
        train_images_idx3="8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        train_labels_idx1="25c81989df183df01b3e8a0aad5dffbe",
        t10k_images_idx3="bef4ecab320f06d8554ea6380940ec79",
        t10k_labels_idx1="bb300cfdad3c16e7a12a480ee83cd310",
    ),
    system="/usr/share/datasets/fashion-mnist",
    advice=", or on Debian: apt-get install dataset-fashion-mnist",
)
MNIST = Source(
    "MNIST",
    ("mnist", "MNIST/raw"),
    _idx_files("6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624", "train"),
    _idx_files("2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637", "t10k"),
    # The authors' own server no longer gives the files to programs; this is PyTorch's copy of them.
    _remotes(
        "https://ossci-datasets.s3.amazonaws.com/mnist/{}-ubyte.gz",
        train_images_idx3="f68b3c2dcbeaaa9fbdd348bbdeb94873",
        train_labels_idx1="d53e105ee54ea40749a09fcbcd1e9432",
        t10k_images_idx3="9fb629c4189551a2d022fa330f9573f3",
        t10k_labels_idx1="ec29112dd5afa0611ce80d1b7f02629c",
    ),
)
SVHN = Source(
    "SVHN",
    ("svhn", "."),
    (("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),),
    (("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),),
    (
        Remote("http://ufldl.stanford.edu/housenumbers/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
        Remote("http://ufldl.stanford.edu/housenumbers/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
    ),
    terms="SVHN is free for non-commercial use only.",
)
CIFAR_10 = Source(
    "CIFAR-10",
    ("cifar-10-batches-py",),
    (
        ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
        ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        ("data_batch_4", "634d18415352ddfa80567beed471001a"),
        ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
    ),
    (("test_batch", "40351d587109b95175f43aff81a1287e"),),
    (Remote("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),),
)
CIFAR_100 = Source(
    "CIFAR-100",
    ("cifar-100-python",),
    (("train", "16019d7e3df5f24257cddd939b257f8d"),),
    (("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),),
    (Remote("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
)
_DIGITS = tuple(range(10))
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_OFFERS = {
    "fashion-mnist": _Offer(lambda: FASHION_MNIST.read(idx_pair, _CLOTHES), 5_000, 60_000),
    "mnist": _Offer(lambda: MNIST.read(idx_pair, _DIGITS), 5_000, 60_000),
    "svhn": _Offer(lambda: SVHN.read(svhn, _DIGITS), 6_257, 73_257, SVHN.terms),
    "cifar-10": _Offer(lambda: CIFAR_10.read(cifar10, _THINGS), 5_000, 50_000),
    "cifar-100": _Offer(lambda: CIFAR_100.read(cifar100, tuple(range(100))), 5_000, 50_000),
    "digits": _Offer(_digits, 137, 1_437),
}
