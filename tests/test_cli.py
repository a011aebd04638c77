import subprocess
import sys
from pathlib import Path

import pytest

from widemargin import cli


def widemargin(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from widemargin.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120)


@pytest.mark.parametrize("verb", [(), ("demo",), ("study",), ("study", "run"), ("study", "report"), ("study", "list")])
def test_every_verb_explains_itself(verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([*verb, "--help"])
    assert stopped.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("study", "run", "figg3"), "widemargin: there is no study named 'figg3': did you mean fig3"),
        (("study", "report", "fig3", "--runs", "nowhere"), "widemargin: nothing is stored in nowhere/"),
        (("study", "run", "fig3", "--workers", "0"), "widemargin: there must be at least 1 worker, got 0"),
    ],
)
def test_bad_input_is_one_sentence_and_a_code(
    arguments: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(arguments))
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(sentence)
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_installed_command_runs() -> None:
    done = widemargin("version")
    assert done.returncode == 0
    assert done.stdout.strip() == __import__("widemargin").__version__
