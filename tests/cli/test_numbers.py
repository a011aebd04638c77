import pytest

from widemargin import cli
from widemargin.cli.sweep import _understood
from widemargin.cli.verbs.audit import Audit
from widemargin.cli.verbs.numbers import number
from widemargin.cli.verbs.sweep import Sweep
from widemargin.runs.sweep import Range


def test_fractions_and_decimals() -> None:
    assert number("8/255") == 8 / 255
    assert number(".03") == 0.03
    assert number("1e-3") == 1e-3
    for wrong in ("8/", "/255", "1/0", "8/255/2", "x", ""):
        with pytest.raises(ValueError, match="a number such as"):
            number(wrong)


@pytest.mark.parametrize("option", ["eps", "alpha", "validate-eps", "weight", "lr"])
def test_train_reads_fractions(option: str) -> None:
    words = cli.verb_of(f"train --data digits --method udp --{option} 8/255".split())
    assert getattr(words, option.replace("-", "_")) == 8 / 255


def test_audit_and_sweep_read_fractions() -> None:
    audit = cli.verb_of(["audit", "nowhere", "--eps", "2/255", "8/255", ".5"])
    sweep = cli.verb_of(
        ["sweep", "--data", "digits", "--method", "udp", "--eps", "1/255:8/255", "--judge-eps", "8/255"]
    )
    assert isinstance(audit, Audit)
    assert isinstance(sweep, Sweep)
    assert audit.eps == (2 / 255, 8 / 255, 0.5)
    assert sweep.judge_eps == 8 / 255
    assert _understood("eps", "1/255:8/255:log") == Range(1 / 255, 8 / 255, log=True)
    assert _understood("alpha", "2/255") == 2 / 255


@pytest.mark.parametrize("words", ["--eps 8/x", "--eps=8/x"])
def test_what_is_no_number_is_one_sentence(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(f"train --data digits --method udp {words}".split())
    assert end.value.code == 2
    assert capsys.readouterr().err == "widemargin: --eps must be a number such as .03 or 8/255, got 8/x\n"
