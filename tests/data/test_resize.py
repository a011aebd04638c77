import numpy as np
import pytest
import torch
from PIL import Image

from widemargin.data.dataset import Dataset, Origin
from widemargin.data.images import ImageSet
from widemargin.data.resize import resize

pytest.importorskip("sklearn")


def images(*shape: int, white: int = 255) -> Dataset:
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Dataset(pixels, torch.arange(len(pixels)) % 2, (0, 1), Origin("here", "0"), white=white)


def test_digits_are_scaled_as_pillow_scales_them() -> None:
    digits = ImageSet("digits").draw().test.take(torch.arange(5))
    found = resize(digits, (1, 28, 28))
    assert found.points.shape == (5, 1, 28, 28)
    assert torch.equal(found.labels, digits.labels)
    for image, scaled in zip(digits.points, found.points, strict=True):
        expected = Image.fromarray(image[0].numpy()).resize((28, 28), Image.Resampling.BILINEAR)
        np.testing.assert_allclose(scaled[0], np.array(expected), atol=1e-5)


def test_smaller_is_averaged_and_not_picked() -> None:
    large = images(3, 1, 32, 32)
    expected = Image.fromarray(large.points[0, 0].numpy()).resize((8, 8), Image.Resampling.BILINEAR)
    np.testing.assert_allclose(resize(large, (1, 8, 8)).points[0, 0], np.array(expected), atol=1e-5)


def test_colours_and_grey() -> None:
    grey, colour = images(4, 1, 8, 8), images(4, 3, 8, 8)
    coloured = resize(grey, (3, 8, 8)).points
    assert torch.allclose(coloured, grey.points.expand(-1, 3, -1, -1))
    mixed = resize(colour, (1, 8, 8)).points
    pixels = colour.stored[0].permute(1, 2, 0).numpy()
    # Pillow rounds to whole bytes.
    np.testing.assert_allclose(255 * mixed[0, 0], np.array(Image.fromarray(pixels).convert("L")), atol=0.51)
    assert torch.equal(resize(colour, (3, 8, 8)).points, colour.points)


def test_a_table_is_not_scaled() -> None:
    with pytest.raises(
        ValueError, match=r"^examples must have the shape \[3\], or both must be images .* got \[1, 8, 8\]$"
    ):
        resize(images(4, 1, 8, 8), (3,))
