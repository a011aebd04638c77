"""The code of pages runs, block after block in one namespace."""

import re
import shlex
from pathlib import Path

import pytest

from widemargin import cli

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def steps(page: str) -> list[tuple[str, str]]:
    """Blocks of Python and of commands, in their order."""
    return re.findall(r"^```(python)?\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


# As a user runs it: a check of every call's types would take minutes.
@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    "page", ["in-your-own-code.md", "scikit-learn.md", *(path.name for path in sorted(DOCS.glob("add-a*.md")))]
)
def test_every_block_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, code in enumerate(blocks(page)):
        exec(compile(code, f"{page}, block {number}", "exec"), names)
    assert number > 0
    if page in ("in-your-own-code.md", "add-a-diagnosis.md"):
        assert (tmp_path / "audit.html").exists()
    if page == "in-your-own-code.md":
        assert list(names["module"].state_dict()) == [f"net.{name}" for name in names["model"].state_dict()]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("untyped")
def test_the_page_of_tables_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code and commands, one after the other."""
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for kind, text in steps("your-own-table.md"):
        if kind == "python":
            exec(compile(text, "your-own-table.md", "exec"), names)
        else:
            for line in text.splitlines():
                command, *words = shlex.split(line)
                assert command == "widemargin"
                cli.main(words)
    raw, program = names["raw"], names["program"]
    assert program(raw).shape == (5, 2)  # type: ignore[operator]
    assert (tmp_path / "three" / "schema.json").exists()


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {path.name for path in DOCS.glob("*.md")} - {"README.md"}
