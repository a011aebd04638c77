"""Crop and flip: all images at once, and the same bit for bit as one after the other."""

import pytest
import torch
from torch import Tensor

from widemargin.data.augment import CropFlip
from widemargin.rng import Rng


def one_by_one(images: Tensor, padding: int, rng: Rng) -> Tensor:
    count, channels, height, width = images.shape
    tops = rng.integers(0, 2 * padding, count).tolist()
    lefts = rng.integers(0, 2 * padding, count).tolist()
    mirrored = rng.integers(0, 1, count).tolist()
    changed = []
    for image, top, left, mirror in zip(images, tops, lefts, mirrored, strict=True):
        canvas = torch.zeros(channels, height + 2 * padding, width + 2 * padding, dtype=images.dtype)
        canvas[:, padding : padding + height, padding : padding + width] = image
        crop = canvas[:, top : top + height, left : left + width]
        changed.append(crop.flip(2) if mirror else crop)
    return torch.stack(changed)


@pytest.mark.parametrize("shape", [(64, 3, 32, 32), (7, 1, 8, 5), (1, 2, 3, 9)])
@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_agrees_with_one_by_one(shape: tuple[int, ...], padding: int, dtype: torch.dtype) -> None:
    images = (torch.rand(shape, generator=torch.Generator().manual_seed(1)) * 255).to(dtype)
    together = CropFlip(padding)(images, Rng.seeded(3))
    assert torch.equal(together, one_by_one(images, padding, Rng.seeded(3)))
    assert together.is_contiguous()


def test_every_shift_and_mirror_comes_up_about_equally_often() -> None:
    image = torch.arange(1, 10.0).view(1, 1, 3, 3)
    changed = CropFlip(1)(image.expand(18_000, 1, 3, 3), Rng.seeded(0))
    kinds, counts = changed.flatten(1).unique(dim=0, return_counts=True)
    assert len(kinds) == 18
    assert (counts - 1000).abs().max() < 6 * 1000**0.5


def test_images_differ_within_a_batch_and_between_calls() -> None:
    images = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1)).expand(50, 3, 32, 32)
    rng = Rng.seeded(0)
    first, second = CropFlip()(images, rng), CropFlip()(images, rng)
    assert len(first.flatten(1).unique(dim=0)) > 25
    assert not torch.equal(first, second)


def test_global_randomness_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    CropFlip()(torch.zeros(4, 1, 8, 8), Rng.seeded(0))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_networks_abreast_get_what_they_would_get_alone() -> None:
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    together = CropFlip(2)(images, Rng.seeded(1, 2))
    alone = [CropFlip(2)(half, Rng.seeded(seed)) for half, seed in zip(images.split(3), (1, 2), strict=True)]
    assert torch.equal(together, torch.cat(alone))


def test_its_repr_makes_it_again() -> None:
    assert eval(repr(CropFlip(2))) == CropFlip(2)


def test_negative_padding_is_refused() -> None:
    with pytest.raises(ValueError, match=r"CropFlip\.padding must be a whole number >= 0, got -1"):
        CropFlip(-1)
