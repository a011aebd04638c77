import pytest

from widemargin.report.advice import Advice, Words

WORDS = {"": ("widemargin", "audit", "my file.onnx"), "--eps": ("0.1",), "--budget": ("1m",)}


@pytest.mark.parametrize(
    ("advice", "words", "command"),
    [
        (Advice("a", {"--eps": ("0.1", "0.2")}), WORDS, "widemargin audit 'my file.onnx' --eps 0.1 0.2 --budget 1m"),
        (Advice("a", {"--budget": None}), WORDS, "widemargin audit 'my file.onnx' --eps 0.1"),
        (
            Advice("a", {"--box": ("$x", "1")}),
            WORDS,
            "widemargin audit 'my file.onnx' --eps 0.1 --budget 1m --box '$x' 1",
        ),
        (Advice("a", {"--eps": ("1",)}), {}, ""),
        (Advice("a"), WORDS, ""),
    ],
)
def test_a_command_is_the_one_that_made_the_audit_but_for_the_changes(
    advice: Advice, words: Words, command: str
) -> None:
    assert advice.command(words) == command
