"""Tests that a change touches, nearest first, for about a minute: `make quick`.

A test file is touched if it is changed itself or imports a changed module, directly or through others.  First come
changed tests and those that mirror a changed module, then the others, the fewer imports lie between the earlier.
What there was no time for is named at the end: `make test` runs all."""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
Graph = Mapping[str, Collection[str]]


def changed(base: str) -> set[str]:
    """Paths of files that differ from a commit or are new."""
    lists = (["git", "diff", "--name-only", base], ["git", "ls-files", "--others", "--exclude-standard"])
    return {
        line
        for command in lists
        for line in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    }


def imports(root: Path = ROOT) -> dict[str, set[str]]:
    """For every module of ours, by its path, the paths of those that it imports itself, wherever in the file."""
    files = [path for folder in ("src", "tests") for path in sorted((root / folder).rglob("*.py"))]
    names = {_name(path.relative_to(root)): str(path.relative_to(root)) for path in files}
    return {str(path.relative_to(root)): _imported(path, names) for path in files}


def nearest_first(graph: Graph, files: Collection[str]) -> list[str]:
    """Test files from which imports lead to one of the files, by how many."""
    importers: dict[str, set[str]] = {}
    for path, inner in graph.items():
        for name in inner:
            importers.setdefault(name, set()).add(path)
    distance = {path: 0 for path in files if path in graph}
    level = list(distance)
    while level:
        beyond = sorted({outer for path in level for outer in importers.get(path, ()) if outer not in distance})
        distance |= dict.fromkeys(beyond, distance[level[0]] + 1)
        level = beyond
    tests = [path for path in distance if Path(path).name.startswith("test_")]
    mirrors = {mirror(path) for path in files}
    return sorted(tests, key=lambda path: (path not in mirrors, distance[path], path))


def mirror(path: str) -> str:
    """The test of a source file."""
    folders = ["studies"] if "widemargin_studies" in Path(path).parts else []
    return str(Path("tests", *folders, *Path(path).parts[2:-1], f"test_{Path(path).name}"))


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, names: Mapping[str, str]) -> set[str]:
    # The front door imports lazily, by its stub.
    stub = path.with_suffix(".pyi")
    modules: set[str] = set()
    for node in ast.walk(ast.parse((stub if stub.exists() else path).read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = node.module or ""
            if node.level:
                package = f"{_name(path.relative_to(ROOT))}.{package}".rstrip(".")
            modules |= {inner if (inner := f"{package}.{alias.name}") in names else package for alias in node.names}
    return {names[module] for module in modules if module in names}


class Deadline:
    """Begins no test after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.waiting: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if time.monotonic() < self.end:
            return None
        self.waiting.append(item.nodeid)
        return True


def main(base: str, seconds: float) -> int:
    tests = nearest_first(imports(), changed(base))
    if not tests:
        print("no test is touched")
        return 0
    deadline = Deadline(seconds)
    code = pytest.main([*(str(ROOT / path) for path in tests)], plugins=[deadline])
    if deadline.waiting:
        files = dict.fromkeys(name.partition("::")[0] for name in deadline.waiting)
        print(f"no time for {len(deadline.waiting)} tests of {', '.join(files)}: `make test` runs all")
    return int(code)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default="HEAD", help="commit to compare with")
    parser.add_argument("--seconds", type=float, default=45.0)
    sys.exit(main(**vars(parser.parse_args())))
