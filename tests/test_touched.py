from functools import cache

import pytest

from touched import imports, nearest_first

GRAPH = {
    "src/widemargin/a/low.py": [],
    "src/widemargin/a/high.py": ["src/widemargin/a/low.py"],
    "src/widemargin/b.py": ["src/widemargin/a/high.py"],
    "tests/a/test_low.py": ["src/widemargin/a/high.py"],
    "tests/test_near.py": ["src/widemargin/a/low.py"],
    "tests/test_far.py": ["src/widemargin/b.py"],
    "tests/test_other.py": [],
    "tests/helper.py": ["src/widemargin/b.py"],
}


def test_the_mirror_first_then_the_nearest() -> None:
    near = ["tests/a/test_low.py", "tests/test_near.py", "tests/test_far.py"]
    assert nearest_first(GRAPH, ["src/widemargin/a/low.py", "README.md"]) == near
    assert nearest_first(GRAPH, ["tests/test_other.py"]) == ["tests/test_other.py"]
    assert nearest_first(GRAPH, ["README.md"]) == []


all_imports = cache(imports)


@pytest.mark.parametrize(
    ("path", "inner"),
    [
        ("tests/test_touched.py", "tests/touched.py"),
        ("src/widemargin/cli/__init__.py", "src/widemargin/cli/spelling.py"),
        # Inside a function, and by the stub of what is imported lazily.
        ("src/widemargin/cli/verbs/train.py", "src/widemargin/cli/train.py"),
        ("src/widemargin/__init__.py", "src/widemargin/perturb/balls.py"),
    ],
)
def test_imports_are_seen_wherever_they_stand(path: str, inner: str) -> None:
    assert inner in all_imports()[path]
