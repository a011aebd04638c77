import ast
import inspect
import os
import pty
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from widemargin import cli
from widemargin.cli import VERBS
from widemargin.cli.verbs.audit import Audit
from widemargin.cli.verbs.calibrate import Calibrate
from widemargin.cli.verbs.separation import Separation
from widemargin.cli.verbs.sweep import Sweep
from widemargin.cli.verbs.train import Train

VERB_WORDS = [
    (),
    *((verb,) for verb in VERBS),
    *(("study", inner) for inner in VERBS["study"]),  # type: ignore[union-attr]
]


@pytest.mark.parametrize("verb", VERB_WORDS, ids=" ".join)
def test_help_fits_80_columns(
    verb: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        cli.main([*verb, "--help"])
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if re.fullmatch("│ +│", line)]


@pytest.mark.parametrize("verb", [Train, Audit, Calibrate, Sweep, Separation])
def test_no_text_is_broken_but_by_the_terminal(verb: type) -> None:
    texts = _docstrings(verb)
    assert len(texts) > 10
    assert not [name for name, text in texts.items() if "\n" in text]


def _docstrings(verb: type) -> dict[str, str]:
    """Of the fields that a class defines or inherits, as they are in the source."""
    texts: dict[str, str] = {}
    for kind in verb.__mro__[:-1]:
        if kind.__module__.startswith("widemargin"):
            (body,) = ast.parse(inspect.getsource(kind)).body
            pairs = pairwise(body.body)  # type: ignore[attr-defined]
            texts |= {a.target.id: b.value.value for a, b in pairs if isinstance(a, ast.AnnAssign) and _is_text(b)}
    return texts


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_is_a_script_and_not_wrapped(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--tyro-print-completion", shell])
    assert not end.value.code
    script = capsys.readouterr().out
    assert "calibrate" in script
    for word in ("linf", "multistep"):
        assert word in script
    if shell == "bash":
        assert script.count("'choices': ['linf', 'l2', 'l1']") == 3, "train, sweep and audit"
        assert "'choices': ['constant', 'cosine', 'triangle', 'multistep']" in script
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def on_a_terminal(*words: str, **environment: str) -> bytes:
    """What a command writes to a terminal, colours included."""
    ours, theirs = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "widemargin.cli", *words],
        stdout=theirs,
        stderr=theirs,
        env={**inherited, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:
            part = b""
        if not part:
            break
        written += part
    os.close(ours)
    process.wait()
    return written


@pytest.mark.parametrize("words", [("zoo", "--help"), ("zoo", "fashion-nothing", "--jsn"), ("study", "list")])
def test_no_color_is_respected(words: tuple[str, ...]) -> None:
    colours = [b"\x1b[3", b"\x1b[9", b"\x1b[38", b"\x1b[1;3"]
    plain = on_a_terminal(*words, NO_COLOR="1")
    assert plain
    assert not any(colour in plain for colour in colours)


def test_a_terminal_has_styles_otherwise() -> None:
    assert b"\x1b[" in on_a_terminal("zoo", "--help")


def test_help_into_a_pipe_that_closes_ends_without_a_traceback() -> None:
    words = f"{sys.executable} -m widemargin.cli train --help | head -1"
    ended = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("usage: widemargin train")
    assert not ended.stderr


def test_a_closed_pipe_ends_quietly() -> None:
    words = f"set -o pipefail; {sys.executable} -m widemargin.cli study list --json | true"
    ended = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert ended.returncode == 141
    assert not ended.stderr
