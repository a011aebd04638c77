"""Jobs as tasks of a real cluster on this computer, which takes seconds to start: all that needs it is slow."""

from pathlib import Path

import pytest

from widemargin.ray_tasks import _Place


def test_the_folder_must_be_shared(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere must be on a file system that all"):
        _Place(str(tmp_path / "nowhere"), {}).enter()
