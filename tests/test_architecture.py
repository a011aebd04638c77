"""Imports go one way: a room knows only rooms before it; `widemargin` itself is the front door."""

import ast
from pathlib import Path

import pytest

import widemargin

PACKAGE = Path(widemargin.__file__).parent
ORDER = [
    {"shapes", "rng", "files", "parts", "rooms"},
    {"data", "networks"},
    {"uncertainty"},
    {"fast"},
    {"perturb"},
    {"method"},
    {"recipes"},
    {"training", "measure"},
    {"runs"},
    {"io"},
    {"auditing"},
    {"widemargin", "workers"},
    {"ray_tasks"},
    {"report"},
    {"audit_report"},
    {"api"},
    {"cli"},
]
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
MODULES = [
    path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py")) if path.parent != PACKAGE / "__pycache__"
]


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("module", [m for m in MODULES if m.name != "__init__.py" or len(m.parts) > 1], ids=str)
def test_imports_go_one_way(module: Path) -> None:
    room = module.parts[0].removesuffix(".py")
    for name in imported(PACKAGE / module):
        package, *inner = name.split(".")
        assert package != "widemargin_studies"
        if package == "widemargin":
            known = inner[0] if inner else package
            assert known == room or RANK[known] < RANK[room], f"{room} must not know {known}"
