import errno
import json
import re
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
import torch
from rich.console import Console

from command import refused
from widemargin import cli


def in_a_process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
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
        (("study", "report", "fig3", "--runs", "nowhere"), "widemargin: fig3 cannot be reported with 0 of "),
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
    done = in_a_process("version")
    assert done.returncode == 0
    assert done.stdout.strip() == __import__("widemargin").__version__


def test_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["--version"])
    assert capsys.readouterr().out.strip() == __import__("widemargin").__version__


def failing(problem: BaseException) -> cli.Verb:
    def verb(console: Console) -> None:
        raise problem

    return verb


@pytest.mark.parametrize(
    ("problem", "code", "sentence"),
    [
        (ValueError("x must hold"), 2, "widemargin: x must hold"),
        (
            FileNotFoundError(2, "No such file", "there"),
            2,
            "widemargin: there cannot be read or written (No such file)",
        ),
        (MemoryError(), 2, "widemargin: this computer has not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 2, "widemargin: this computer has not enough"),
        (BrokenProcessPool(), 1, "widemargin: a worker process was killed"),
        (KeyboardInterrupt(), 130, "widemargin: stopped"),
    ],
)
def test_exit_codes(problem: BaseException, code: int, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.execute(failing(problem))
    assert end.value.code == code
    assert capsys.readouterr().err.startswith(sentence)


def test_an_error_of_ours_is_not_hidden() -> None:
    with pytest.raises(RuntimeError, match="ours"):
        cli.execute(failing(RuntimeError("ours")))


def test_the_document_names_every_verb_code_and_json_key(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs/command-line.md").read_text()
    assert set(re.findall(r"^\| (\d+) \|", text, re.MULTILINE)) == {"0", "1", "2", "130", "141", "143"}
    for verb, kind in cli.VERBS.items():
        if verb == "version":
            continue
        assert re.search(rf"`{verb}\b", text)
        kinds = kind.values() if isinstance(kind, dict) else [kind]
        if any(hasattr(one, "json") for one in kinds):
            assert re.search(rf"^\|[^|]*`{verb}\b", text.partition("## JSON")[2], re.MULTILINE)
    cli.main(["zoo", "--json"])
    networks = json.loads(capsys.readouterr().out)["networks"]
    for key in {key for network in networks for key in network}:
        assert f"`{key}`" in text


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (OSError(errno.EIO, "Input/output error"), "the system refused to read or write (Input/output error)"),
        (MemoryError(), "this computer has not enough memory for that"),
        (RecursionError("deep"), "something here is nested too deeply"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "this computer has not enough memory"),
        (torch.OutOfMemoryError("CUDA out of memory"), "this computer has not enough memory for that"),
    ],
    ids=repr,
)
def test_whatever_the_system_refuses_is_one_sentence(
    problem: Exception, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused("", capsys, command=lambda words: cli.execute(failing(problem)))
    assert said.startswith(sentence)
