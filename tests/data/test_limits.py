from pathlib import Path

import pytest

from widemargin.data import limits


def test_only_a_plain_file_of_bounded_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert limits.size_of(tmp_path / "a") == 5
    with pytest.raises(ValueError, match="a must have at most 4 bytes, got 5: use a part of it"):
        limits.size_of(tmp_path / "a", 4)
    with pytest.raises(ValueError, match="must be a file, got a folder"):
        limits.size_of(tmp_path)
    with pytest.raises(ValueError, match="got a device"):
        limits.size_of(Path("/dev/zero"))
    with pytest.raises(ValueError, match="nothing must be readable, got No such file"):
        limits.size_of(tmp_path / "nothing")


def test_a_large_file_may_unpack_in_proportion_and_a_small_one_to_a_fixed_size() -> None:
    most, ratio = limits.MOST_UNPACKED, limits.MOST_RATIO
    limits.check_unpacked(Path("a"), most, 1)
    limits.check_unpacked(Path("a"), ratio * most, most)
    for unpacked, packed in ((most + 1, 1), (ratio * most + 1, most)):
        with pytest.raises(ValueError, match="a must unpack to at most"):
            limits.check_unpacked(Path("a"), unpacked, packed)


def test_what_is_shown_has_one_line_of_bounded_length() -> None:
    assert limits.short("a\n  b") == "a b"
    assert limits.short(61 * "x") == 60 * "x" + "..."
    assert limits.quoted(61 * "x") == repr(60 * "x") + "..."
    assert limits.listed(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert limits.listed(range(1234)).endswith("8, 9, ... (1,234 in all)")
    assert limits.reason(KeyError()) == "KeyError"
    assert limits.reason(ValueError("a\nb")) == "ValueError: a b"
