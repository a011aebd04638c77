"""The command line, called in this process."""

from collections.abc import Callable

import pytest

from widemargin import cli


def widemargin(words: str) -> None:
    cli.main(words.split())


def refused(
    words: str, capsys: pytest.CaptureFixture[str], code: int = 2, command: Callable[[str], None] = widemargin
) -> str:
    """The one sentence that a command ends with."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        command(words)
    assert stopped.value.code == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error.removeprefix("widemargin: ")
