import pytest

from command import refused
from widemargin.cli.parser_errors import one_sentence, sentence_of


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("calibrate x --fit temp", "--fit must be one of temperature, vector, got temp"),
        ("audit x", "`widemargin audit` needs --eps: `widemargin audit --help` shows all"),
        ("train", "`widemargin train` needs --data and --method: `widemargin train --help` shows all"),
        ("calibrate", "`widemargin calibrate` needs MODEL: `widemargin calibrate --help` shows all"),
        ("study run", "`widemargin study run` needs NAME: `widemargin study run --help` shows all"),
        ("study", "`widemargin study` needs a subcommand, one of list, run, report"),
        ("audit x --eps .1 --points", "--points needs a value: `widemargin audit --help` shows all"),
        ("audit --model x --eps .1", "MODEL needs a value: `widemargin audit --help` shows all"),
        ("audit x --eps .1 --points y", "--points must be a whole number, got y: `widemargin audit --help` shows all"),
        (
            "train --data digits --method udp --steps x",
            "--steps must be a whole number, got x: `widemargin train --help` shows all",
        ),
        (
            "train --data digits --method udp --size 3",
            "--size must be as its help says, got 3: `widemargin train --help` shows all",
        ),
        ("runs a b", "`widemargin runs` takes no b: `widemargin runs --help` shows all"),
    ],
)
def test_a_wrong_option_is_one_sentence(words: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(words, capsys).strip() == sentence


def test_a_box_of_another_kind_is_joined() -> None:
    box = "╭─ New ───╮\n│ Some      │\n│ problem.  │\n│ ───────── │\n│ more      │\n╰───────────╯\n"
    assert sentence_of(box, "widemargin zoo") == "Some problem: `widemargin zoo --help` shows all"


def test_other_ends_stay() -> None:
    with pytest.raises(SystemExit) as end, one_sentence("widemargin"):
        raise SystemExit(0)
    assert end.value.code == 0
