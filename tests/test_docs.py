"""The code of pages runs, block after block in one namespace."""

import re
from pathlib import Path

import pytest

from widemargin.measure import surrogate

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


# As a user runs it: a check of every call's types would take minutes.
@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("page", ["in-your-own-code.md", *(path.name for path in sorted(DOCS.glob("add-a*.md")))])
def test_every_block_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(surrogate, "UPDATES", 100)
    names: dict[str, object] = {}
    for number, code in enumerate(blocks(page)):
        exec(compile(code, f"{page}, block {number}", "exec"), names)
    assert number > 0
    if page in ("in-your-own-code.md", "add-a-diagnosis.md"):
        assert (tmp_path / "audit.html").exists()
    if page == "in-your-own-code.md":
        assert list(names["module"].state_dict()) == [f"net.{name}" for name in names["model"].state_dict()]  # type: ignore[attr-defined]


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {path.name for path in DOCS.glob("*.md")} - {"README.md"}
