import pytest

from widemargin.cli import main


@pytest.mark.parametrize(
    "words",
    [
        "train --data digits --method fgsm --eps .1 --norm l3",
        "audit model.onnx --data digits --eps .1 --norm l3",
    ],
)
def test_a_word_that_is_not_offered_is_one_sentence(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("widemargin: "), told
    assert len(told.splitlines()) == 1
