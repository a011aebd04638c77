import pytest

from widemargin.cli import VERBS
from widemargin.cli.spelling import check_words, option_of


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("trian --data digits", "`widemargin` has no subcommand trian: did you mean train?"),
        ("juggle", "`widemargin` has no subcommand juggle: `widemargin --help` shows all"),
        ("study lst", "`widemargin study` has no subcommand lst: did you mean list?"),
        ("study report fig1 --keeep x", "`widemargin study report` has no option --keeep: did you mean --keep?"),
        ("train --epoch 3", "`widemargin train` has no option --epoch: did you mean --epochs?"),
        ("train --epoch=3", "`widemargin train` has no option --epoch: did you mean --epochs?"),
        ("runs --qqq", "`widemargin runs` has no option --qqq: `widemargin runs --help` shows all"),
        ("train --rate .1", "--rate is now called --lr"),
        ("sweep --rate .1:.2", "--rate is now called --lr"),
        ("train --decay cosine", "--decay is now called --schedule"),
        ("train --learning-rate .1", "`widemargin train` has no option --learning-rate: it is called --lr"),
        ("train --step-size .1", "`widemargin train` has no option --step-size: it is called --alpha"),
        ("train --num-steps=3", "`widemargin train` has no option --num-steps: it is called --steps"),
        ("sweep --beta 1:6", "`widemargin sweep` has no option --beta: it is called --weight"),
        ("audit x --epsilon .1", "`widemargin audit` has no option --epsilon: it is called --eps"),
        ("audit x --max-time 1h", "`widemargin audit` has no option --max-time: it is called --budget"),
        ("train --max-time 1h", "`widemargin train` has no option --max-time: it is called --stop-after"),
    ],
)
def test_a_wrong_word_gets_the_near_one(words: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"widemargin|now called") as refused:
        check_words(words.split(), VERBS)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--help",
        "train --help",
        "audit x --box -1 1",
        "train --validate_eps .1",
        "calibrate x --ood digits",
        "--tyro-print-completion bash",
    ],
)
def test_right_words_are_for_the_parser(words: str) -> None:
    check_words(words.split(), VERBS)


def test_whose_value_it_was() -> None:
    assert option_of("8/x", ["train", "--alpha", ".1", "--eps", "8/x", "--steps", "3"]) == "--eps"
    assert option_of("8/x", ["train", "--alpha", ".1", "--eps=8/x", "--steps", "3"]) == "--eps"
    assert option_of("b", ["audit", "x", "--eps", ".1", "b"]) == "--eps"
