import shutil
from pathlib import Path

import numpy as np
import pytest

from small_audits import QUESTION, asked, subject
from widemargin.auditing.chunks import check_saved
from widemargin.auditing.result import Audit

pytestmark = pytest.mark.usefixtures("quick_surrogate", "one_thread")


def test_a_chunk_holds_the_rows_it_must(whole: Audit, tmp_path: Path) -> None:
    """One of another question, one by another name, and one flipped bit."""
    asked(tmp_path)
    place = tmp_path / subject().key(QUESTION)
    chunk = sorted(place.glob("0*.safetensors"))[0]
    good = chunk.read_bytes()
    other = place.with_name("other")
    shutil.copytree(place, other)
    with pytest.raises(ValueError, match="holds points of another audit: delete it, and the same command"):
        check_saved(other, QUESTION, 60)
    for damage, word in (
        (lambda: chunk.rename(place / "000999.safetensors"), "another audit"),
        (lambda: chunk.write_bytes(good[:-3] + bytes([good[-3] ^ 4]) + good[-2:]), "its checksum differs"),
    ):
        damage()
        with pytest.raises(ValueError, match=f"{word}.*: delete it, and the same command measures"):
            asked(tmp_path)
        (place / "000999.safetensors").unlink(missing_ok=True)
        chunk.unlink(missing_ok=True)
        again = asked(tmp_path)
        assert again.n == 24
        assert np.array_equal(again.points["margin"], whole.points["margin"])
