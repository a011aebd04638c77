"""Folders of images: read as they are, or refused in one sentence that names the place."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from command import widemargin
from made_files import pictures
from partly import RNG, VAT
from widemargin.data.checks import UNLABELLED
from widemargin.data.image_folder import ImageFolder


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_folder(root: Path, sizes: dict[str, tuple[int, int]], mode: str = "RGB") -> None:
    for name, size in sizes.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, color=len(name)).save(path)


def test_image_folder(tmp_path: Path) -> None:
    for number, name in enumerate(["dog/a.png", "dog/b.png", "cat/z.bmp"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(pictures(1, 3, 8, number)[0].transpose(1, 2, 0)).save(tmp_path / name)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "dog/.DS_Store").write_bytes(b"x")
    (tmp_path / "dog/Thumbs.db").write_bytes(b"x")
    (tmp_path / "readme.txt").write_text("x")
    read = ImageFolder(str(tmp_path)).read()
    assert read.names == ("cat", "dog")
    assert read.labels.tolist() == [0, 1, 1]
    expected = np.concatenate([pictures(1, 3, 8, number) for number in (2, 0, 1)])
    assert np.array_equal(read.stored.numpy(), expected)
    assert torch.equal(read.points, torch.from_numpy(expected).float() / 255)


def test_image_folder_to_one_mode_and_size(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a/1.png": (8, 6), "b/2.png": (20, 10)})
    write_folder(tmp_path, {"b/grey.png": (4, 4)}, mode="L")
    write_folder(tmp_path, {"b/clear.png": (4, 4)}, mode="RGBA")
    write_folder(tmp_path, {"b/some.gif": (4, 4)}, mode="P")
    assert ImageFolder(str(tmp_path), size=(6, 8)).read().stored.shape == (5, 3, 6, 8)
    assert ImageFolder(str(tmp_path), mode="L", size=(6, 8)).read().stored.shape == (5, 1, 6, 8)


def test_image_folder_stands_photographs_upright(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.new("RGB", (10, 4)).save(tmp_path / name / "x.jpg", exif=exif)
    assert ImageFolder(str(tmp_path)).read().stored.shape == (2, 3, 10, 4)


def test_image_folder_of_mixed_sizes(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a/1.png": (8, 6), "b/2.png": (20, 10)})
    with pytest.raises(ValueError, match=r"one size, got 6 x 8 and, in .*2\.png, 10 x 20 .*: give --size HEIGHT WIDTH"):
        ImageFolder(str(tmp_path)).read()


def test_image_folder_digest_tells_versions_apart(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a/1.png": (8, 6), "b/2.png": (8, 6)})
    first = ImageFolder(str(tmp_path)).read().origin
    assert ImageFolder(str(tmp_path)).read().origin == first
    write_folder(tmp_path, {"b/2.png": (8, 6)}, mode="L")
    assert ImageFolder(str(tmp_path)).read().digest != first.digest


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"]
)
def test_image_folder_with_what_is_no_image(tmp_path: Path, content: bytes) -> None:
    write_folder(tmp_path, {"a/1.png": (8, 6), "b/2.png": (8, 6)})
    (tmp_path / "a/0.png").write_bytes(content)
    with pytest.raises(ValueError, match=r"a/0\.png must be a whole image .*: replace or remove it"):
        ImageFolder(str(tmp_path)).read()


def test_image_folder_with_deep_images(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a/1.png": (8, 6), "b/2.png": (8, 6)}, mode="I;16")
    with pytest.raises(ValueError, match=r"1\.png must have 8 bits per channel, got mode I;16"):
        ImageFolder(str(tmp_path)).read()


def test_image_folder_with_a_cut_image(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(pictures(1, 3, 64)[0].transpose(1, 2, 0)).save(tmp_path / name / "x.png")
    os.truncate(tmp_path / "b/x.png", 5000)
    with pytest.raises(ValueError, match=r"b/x\.png must be a whole image"):
        ImageFolder(str(tmp_path)).read()


def test_image_folder_without_classes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 2 classes, got 0"):
        ImageFolder(str(tmp_path)).read()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match="a must hold images, got none"):
        ImageFolder(str(tmp_path)).read()
    with pytest.raises(ValueError, match="nowhere does not exist"):
        ImageFolder(str(tmp_path / "nowhere")).read()


@pytest.mark.parametrize("wrong", [{"mode": "CMYK"}, {"size": (0, 3)}, {"size": (10**5, 10**4)}])
def test_wrong_image_folders_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"(ImageFolder\.mode|--size) must be"):
        ImageFolder("x", **wrong)  # type: ignore[arg-type]


def test_a_folder_of_images_called_unlabelled_is_no_class(capsys: pytest.CaptureFixture[str]) -> None:
    for name, count in (("cat", 12), ("dog", 12), ("unlabelled", 9)):
        (Path("own") / name).mkdir(parents=True)
        for number in range(count):
            pixels = RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(Path("own") / name / f"{number}.png")
    read = ImageFolder("own").read()
    assert read.names == ("cat", "dog")
    assert read.labels.tolist() == [0] * 12 + [1] * 12 + [UNLABELLED] * 9
    widemargin(f"train --data own --network lenet {VAT} --epochs 1 --out here")
    assert "9 of 26 training rows have no label: they are trained on too" in capsys.readouterr().out
    assert json.loads(Path("here/figures.json").read_text())["clean"] <= 1
