import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tyro

from command import refused, widemargin
from sweeps import SHORT, folders, write_data
from widemargin import cli
from widemargin.cli.sweep import _Words, words_of
from widemargin.cli.verbs.sweep import Sweep
from widemargin.cli.verbs.train import Train
from widemargin.runs.folder import RunFolder
from widemargin.runs.run_yaml import read_run


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data(0)


def test_a_sweep_chooses_by_validation_and_tests_the_chosen_one_alone(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin(f"{SHORT} --trials 3")
    said = capsys.readouterr().out
    assert "never searched: accuracy on the validation split under PGD-10 linf 0.1" in " ".join(said.split())
    best = {path: max(line.get("robust", 0) for line in RunFolder(path).lines()) for path in folders()}
    assert len(best) == 3
    (tested,) = [folder for folder in folders() if RunFolder(folder).read_figures()]
    assert best[tested] == max(best.values())
    assert f"Next: widemargin audit {tested} --eps 0.1" in said
    assert Path("runs/sweep/sweep.png").read_bytes().startswith(b"\x89PNG")
    assert "| trial | robust | clean | eps | alpha | steps |" in Path("runs/sweep/report.md").read_text()
    # The command that goes on from there is one that `train` takes, with another seed.
    (command,) = re.findall(r"with another seed: widemargin (.*)", said)
    widemargin(f"{command} --out again")
    run, again = (read_run(folder / "run.yaml") for folder in (tested, Path("again")))
    assert again == replace(run, seed=1)


def test_without_optuna_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert refused(SHORT, capsys) == (
        "`widemargin sweep` needs 'widemargin[sweeps]', which is not installed: pip install 'widemargin[sweeps]'\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--eps .2 --alpha .1 --steps 1 --judge-eps .1", "a sweep needs a range to search: give --eps"),
        ("--eps .2:.3 --eps-column a=1 --judge-eps .1", "--eps-column scales columns by --eps"),
        (
            "--eps .5:.1 --alpha .1 --steps 1 --judge-eps .1",
            "--eps must be a number, LOW:HIGH or LOW:HIGH:log, got .5:.1",
        ),
        ("--eps 0:.1:log --alpha .1 --steps 1 --judge-eps .1", "--eps must be a number, LOW:HIGH or LOW:HIGH:log"),
        ("--eps .1:.2:lin --alpha .1 --steps 1 --judge-eps .1", "--eps must be a number, LOW:HIGH or LOW:HIGH:log"),
        (
            "--eps .2 --alpha .1 --steps 1:2.5 --judge-eps .1",
            "--steps must be a whole number, LOW:HIGH or LOW:HIGH:log",
        ),
        ("--eps .1:.2 --alpha .1 --steps 1 --judge-eps 0", "--judge-eps must be a radius above 0"),
        ("--alpha .1:.2 --judge-eps .1", "udp needs --eps"),
        ("--eps .1:.2 --alpha .1 --steps 1 --judge-eps .1 --trials 0", "--trials must be at least 1, got 0"),
        (
            "--eps .1:.2 --alpha .1 --steps 1 --judge-eps .1 --storage nowhere",
            "--storage must be the address of a database that can be written, such as sqlite:///sweep.db, got nowhere",
        ),
        (
            "--eps .1:.2 --alpha .1 --steps 1 --judge-eps .1 --storage sqlite:///no/such/folder.db",
            "--storage must be the address of a database that can be written",
        ),
    ],
)
def test_wrong_words(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(f"sweep --data own.npz --method udp {words}", capsys).startswith(said)
    assert folders() == []


def test_changed_data_is_another_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin(f"{SHORT} --trials 1")
    write_data(1)
    capsys.readouterr()
    assert refused(f"{SHORT} --trials 2", capsys).startswith("the data must be as it was when the sweep began")


def test_words_of_a_run_are_understood_by_train() -> None:
    train = Train("a b.npz", "udpr", eps=0.2, steps=3, weight=1.0, latent=True, size=(8, 9), seed=4, box="open")
    config = (tyro.conf.FlagCreatePairsOff,)
    words = shlex.split(shlex.join(words_of(train)))
    assert tyro.cli(Train, args=words, config=config) == train


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("--data own.npz --method udp --eps .1:.4 --alpha .05:.2:log --steps 1:3", "sweep-0fb970e9d8ae6b6d"),
        (
            "--data t.csv --label kind --method udpr --eps .1 --alpha .1 --steps 5 --weight .1:1 --mean .5 --size 8 8 "
            "--seed 3 --device cuda --fixed a,b --epochs 2 --no-standardize --lr .1:.2 --average ema --optimizer sgd",
            "sweep-e2868910c301335b",
        ),
    ],
)
def test_a_sweep_of_before_is_found_by_its_name(words: str, name: str) -> None:
    assert _Words.of(understood(f"{words} --judge-eps .1")).name == name


def test_an_option_that_came_later_names_another_sweep_where_it_is_given() -> None:
    usual, other = (_Words.of(understood(f"{SHORT[6:]}{more}")).name for more in ("", " --decimal ,"))
    assert usual != other


def understood(words: str) -> Sweep:
    verb = cli.verb_of(["sweep", *words.split()])
    assert isinstance(verb, Sweep)
    return verb
