"""Imports go one way: a room knows only those before it; `widemargin` itself is the front door.  Tests mirror files."""

import ast
from pathlib import Path

import pytest

import widemargin

PACKAGE = Path(widemargin.__file__).parent
ORDER = [
    {"shapes", "rng", "files", "arguments", "parts", "rooms"},
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
    {"api", "testing"},
    {"sklearn"},
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


TESTS = Path(__file__).parent
SOURCES = {path.relative_to(PACKAGE.parent): path for path in sorted(PACKAGE.parent.rglob("widemargin*/**/*.py"))}
TESTED_ELSEWHERE = {
    "widemargin/cli/__main__.py": "one call of cli.main",
    **dict.fromkeys(
        (f"widemargin_studies/{name}.py" for name in ("tab1", "tab2", "tab3", "tab4", "tab5", "fig5")),
        "a value of pixels.ImageStudy: tests/studies/test_pixels.py fills, reports and judges each",
    ),
    **dict.fromkeys(
        (f"widemargin_studies/app_overfitting_{name}.py" for name in ("fashion", "cifar")),
        "a value of pixels.ImageStudy: tests/studies/test_pixels.py fills, reports and judges each",
    ),
}
ACROSS = {"conformance", "faults", "golden", "version_1"}
"""Folders of tests that hold many sources at once to one rule."""
ACROSS_FILES = {
    "test_architecture.py": "imports and tests of all files",
    "test_docs.py": "the pages of docs/",
    "test_examples.py": "the files of examples/ and the README",
    "test_quick.py": "what each command imports",
    "slow/test_audit_in_browser.py": "the page of an audit in a browser",
    "slow/test_autoattack_agreement.py": "agreement with pyautoattack",
    "slow/test_demonstration.py": "what the README says of the demonstration",
}


def mirror(source: Path) -> Path:
    """Of a/b.py: a/test_b.py; of a package itself: a/test_a.py; the options of a verb are tested with what it does."""
    package, *folders = source.parent.parts
    folders = [*(["studies"] if package == "widemargin_studies" else []), *folders]
    if folders[:2] == ["cli", "verbs"]:
        folders = ["cli"]
    name = source.parent.name if source.name == "__init__.py" else source.stem
    return Path(*folders, f"test_{name}.py")


def defines(path: Path) -> bool:
    """Whether there is anything to test: a function, or a class that is more than a protocol."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            return True
        if isinstance(node, ast.ClassDef) and "Protocol" not in map(ast.unparse, node.bases):
            return True
    return False


@pytest.mark.parametrize("source", [s for s, path in SOURCES.items() if defines(path)], ids=str)
def test_every_source_has_its_test(source: Path) -> None:
    if source.name != "__init__.py" and str(source) not in TESTED_ELSEWHERE:
        assert (TESTS / mirror(source)).is_file(), f"{source} must be tested in tests/{mirror(source)}"


def test_every_test_has_its_source() -> None:
    mirrors = {mirror(source) for source in SOURCES}
    # Tests of what only tests use stand beside it.
    mirrors |= {Path(f"test_{helper.name}") for helper in TESTS.glob("*.py")}
    mirrors |= {Path("slow") / path for path in mirrors}
    tests = {path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    across = {path for path in tests if ACROSS & set(path.parts) or str(path) in ACROSS_FILES}
    assert tests - mirrors - across == set()


def test_no_exception_is_out_of_date() -> None:
    for source in TESTED_ELSEWHERE:
        assert Path(source) in SOURCES
        assert not (TESTS / mirror(Path(source))).exists()
    assert all((TESTS / path).is_file() for path in ACROSS_FILES)


MAY_PATCH = {
    "faults/commands.py": "counts a process's writes to disk, and kills it at one of them",
    "typechecker.py": "the hook by which jaxtyping checks signatures",
}
"""All others give their subject what it needs, or use the real thing: they replace nothing of a module or class."""


def patches(path: Path) -> list[int]:
    """The lines that replace something by setattr, a patch or an assignment.

    A package that is missing may be simulated in sys.modules.
    """
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = {alias.asname or alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    calls = [(node, ast.unparse(node.func).split(".")) for node in nodes if isinstance(node, ast.Call)]
    targets = [target for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
    return [
        *(call.lineno for call, name in calls if name[-1] in ("setattr", "delattr") or "patch" in name),
        *(
            call.lineno
            for call, name in calls
            if name[-1] in ("setitem", "delitem") and ast.unparse(call.args[0]) != "sys.modules"
        ),
        *(one.lineno for one in targets if isinstance(one, ast.Attribute) and ast.unparse(one.value) in modules),
    ]


def test_a_subject_is_given_what_it_needs() -> None:
    patched = {str(path.relative_to(TESTS)): lines for path in TESTS.rglob("*.py") if (lines := patches(path))}
    # A file that may patch and no longer does is out of date.
    assert patched.keys() == MAY_PATCH.keys(), (
        f"give the subject what it needs as a value, instead of patching: {patched}"
    )


def test_slow_tests_live_in_one_place() -> None:
    """But for slow rows of a table of tests, and those of faults."""
    marked = {path for path in TESTS.rglob("test_*.py") if "\n@pytest.mark.slow" in path.read_text()}
    assert {path.relative_to(TESTS).parts[0] for path in marked} == {"slow", "faults"}
