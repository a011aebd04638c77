"""Every example runs; here with few updates."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded(path).main(updates=60)
    assert "errors" in capsys.readouterr().out


def test_the_quickstart_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    code = readme.split("```python\n")[1].split("```")[0]
    exec(compile(code.replace("Epochs(300)", "Epochs(20)"), "README.md", "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) == 1
