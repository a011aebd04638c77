import os
import pty
import subprocess
import sys

import pytest

from widemargin import cli
from widemargin.cli import VERBS

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


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_is_a_script_and_not_wrapped(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--tyro-print-completion", shell])
    assert not end.value.code
    script = capsys.readouterr().out
    assert "calibrate" in script
    if shell == "bash":
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
