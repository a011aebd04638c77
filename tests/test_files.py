from pathlib import Path

import numpy as np
import pytest
import torch

from disks import full_disk
from widemargin.files import (
    Damaged,
    read_json,
    read_tensors,
    remove_partial,
    sealed_text,
    unsealed_text,
    write_json,
    write_tensors,
    write_whole,
)

CONTENT = {"clean": 0.75, "robust": 0.5, "names": ["a", "b"], "key": "0123456789abcdef"}


def flips(whole: bytes) -> list[bytes]:
    return [whole[:i] + bytes([whole[i] ^ (1 << bit)]) + whole[i + 1 :] for i in range(len(whole)) for bit in range(8)]


def test_no_bit_of_a_json_file_can_change_unseen(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, CONTENT)
    assert read_json(path) == CONTENT
    for flipped in [*flips(path.read_bytes()), *(path.read_bytes()[:n] for n in range(path.stat().st_size - 2))]:
        path.write_bytes(flipped)
        try:
            found = read_json(path)
        except Damaged:
            continue
        assert found == CONTENT


def test_tensors_without_a_single_number_are_kept_too(tmp_path: Path) -> None:
    """numpy's empty arrays have strides of 0."""
    tensors = {"none": torch.from_numpy(np.array([])), "flat": torch.from_numpy(np.zeros((0, 3))), "one": torch.ones(1)}
    write_tensors(tmp_path / "a.safetensors", tensors, {"key": "k"})
    found, _ = read_tensors(tmp_path / "a.safetensors")
    assert {name: value.shape for name, value in found.items()} == {name: t.shape for name, t in tensors.items()}


def test_no_bit_of_a_text_can_change_unseen() -> None:
    text = "title: udp\nkey: 0123456789abcdef\nseed: 3\n"
    sealed = sealed_text(text)
    assert unsealed_text(sealed, Path("run.yaml")) == text
    assert unsealed_text(text, Path("run.yaml")) == text
    cut = [sealed.encode()[:n] for n in range(1, len(sealed))]
    for changed in [*flips(sealed.encode()), *cut]:
        said = changed.decode(errors="replace")
        try:
            read = unsealed_text(said, Path("run.yaml"))
        except Damaged:
            continue
        # A word that was cut short is no run.
        assert read == text or sealed.startswith(said)
        assert "key" not in read or read == text


def test_a_full_disk_is_one_sentence_and_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, CONTENT)
    with full_disk(), pytest.raises(ValueError, match=r"a.json cannot be written \(File too large\): make room"):
        write_whole(path, b"new")
    assert read_json(path) == CONTENT
    assert [inside.name for inside in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("name", ["a.json", ".a.json.partial"])
def test_a_folder_in_the_way_is_one_sentence_and_stays(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=r"a.json cannot be written \(Is a directory\): make room"):
        write_whole(tmp_path / "a.json", b"new")
    assert [inside.name for inside in tmp_path.iterdir()] == [name]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    for name in (".a.json.partial", "a.json", ".lock"):
        (tmp_path / name).write_text("x")
    remove_partial(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "a.json"]
