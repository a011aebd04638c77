import inspect
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cases import WITH_BALL, WITHOUT_BALL
from command import refused
from made_files import write_cifar10, write_idx, write_svhn
from widemargin import SGD, Adam, Epochs, Linf, Method, recipes
from widemargin.cli.describe import MEASURES, describe, notes_on
from widemargin.cli.verbs.train import Train
from widemargin.training.plan import EMA, SWA, Multistep, NoAverage, Triangle
from widemargin.uncertainty.estimators import BeforeHead


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--device meta", "--device must be one that this computer has, got meta"),
        ("--capacity 1000000", "this computer has not enough memory for that"),
        (f"--seed {2**70}", "--seed must be a whole number from 0 to 2^63 - 1"),
        ("--seed -1", "--seed must be a whole number from 0 to 2^63 - 1"),
    ],
)
def test_what_no_computer_can_do_is_one_sentence(
    words: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(f"train --data digits --method standard {words}", capsys).startswith(sentence)
    assert not list(tmp_path.iterdir())


WORDS = {"eps": 0.2, "alpha": 0.1, "steps": 2, "weight": 0.5, "patience": 1, "scale": 0.1, "measure": "gap"}


STANDARD, DIGITS_UDP = "--data digits --method standard", "--data digits --method udp"


@pytest.mark.parametrize(
    ("name", "words", "shape", "members"),
    [
        ("lenet", {"dropout": 0.3}, "dropout=0.3)", "SingleSpec"),
        ("lenet", {"dropout_draws": 4}, "dropout=0.2)", "MCDropoutSpec"),
        ("lenet", {"deep_kernel": True}, "dropout=0.0)", "DeepKernelSpec"),
        ("resnet18", {"deep_kernel": True}, "he_normal=False)", "DeepKernelSpec"),
        ("resnet18", {"members": 2}, "he_normal=False)", "EnsembleSpec"),
        ("resnet18-dropout", {"dropout_draws": 4, "dropout": 0.1}, "dropout=0.1)", "MCDropoutSpec"),
    ],
)
def test_words_for_members(name: str, words: dict[str, float], shape: str, members: str) -> None:
    trial = describe(Train("digits", "standard", name, **words))[1]
    assert repr(trial.network).endswith(shape)
    assert type(trial.estimator).__name__ == members


def test_members_get_the_rate_of_one_under_sgd() -> None:
    descents = [describe(Train("digits", "standard", optimizer="sgd", members=m))[1].plan.descent for m in (None, 4)]
    assert [descent.lr for descent in descents] == [0.15, 0.6]
    assert [descent.weight_decay for descent in descents] == [5e-4, 1.25e-4]


@pytest.mark.parametrize("name", [*WITHOUT_BALL, *WITH_BALL])
def test_every_recipe_has_its_words(name: str) -> None:
    recipe = getattr(recipes, name)
    taken = ["eps" if word == "ball" else word for word in inspect.signature(recipe).parameters]
    given = {word: WORDS[word] for word in taken}
    _, trial, _ = describe(Train("digits", name.replace("_", "-"), **given))
    arguments = {word: value for word, value in given.items() if word != "eps"}
    if "measure" in arguments:
        arguments["measure"] = MEASURES["gap"]
    assert trial.method == recipe(*([Linf(0.2)] if "eps" in given else []), **arguments)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("udp", recipes.udp(Linf(0.2), alpha=0.05, steps=10)),
        ("pgd", recipes.pgd(Linf(0.2), alpha=0.05, steps=10)),
        ("r-fgsm", recipes.r_fgsm(Linf(0.2), alpha=0.25)),
        ("udp-single-step", recipes.udp_single_step(Linf(0.2))),
    ],
)
def test_steps_follow_from_the_radius_where_nothing_is_said(method: str, expected: Method) -> None:
    assert describe(Train("digits", method, eps=0.2))[1].method == expected
    if method == "udp":
        _, run, _ = describe(Train("digits", method, eps=0.2, alpha=0.1, steps=3))
        assert run.method == recipes.udp(Linf(0.2), alpha=0.1, steps=3)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "--data digits --method udpr --eps .2",
            "udpr needs --weight: it takes --eps, --alpha, --steps, --weight, --measure",
        ),
        ("--data digits --method udp --eps 1 --alpha 1 --steps 1 --measure doubt", "--measure must be one of entropy"),
        ("--data digits --method standard --eps .2", "standard takes no --eps: it takes nothing"),
        (
            "--data digits --method udp --alpha .1",
            "udp needs --eps: it takes --eps, --alpha, --steps, --measure; `--eps auto` chooses by the data",
        ),
        ("--data digits --method fgsm --eps .2 --weight 1", "fgsm takes no --weight: it takes --eps"),
        ("--data digits --method upd", "there is no method named upd: did you mean udp?"),
        ("--data digts --method standard", "--data must be one of"),
        ("--data digits --method standard --network vgg", "--network must be one of"),
        ("--data digits --method standard --network none.py:Net", "none.py does not exist"),
        (
            "--data digits --method standard --width 3",
            "--width is for resnet18, resnet18-dropout, resnet18-he, mlp: leave it out",
        ),
        ("--data digits --method standard --average median", "--average must be ema"),
        ("--data digits --method standard --latent --cut encoder", "--latent and --cut say the same"),
        ("--data digits --method standard --batch 5000", "batch must be in 1..1300"),
        ("--data digits --method standard --lr 0", "--lr must be a number above 0, got 0.0"),
        ("--data digits --method standard --device gpu", "--device must be one that this computer has"),
        (
            "--data digits --method standard --members 2 --dropout-draws 3",
            "--members and --dropout-draws are different",
        ),
        ("--data digits --method standard --members 1", "--members must be a whole number of at least 2, got 1"),
        ("--data digits --method standard --members 2 --latent", "--members have latent spaces of their own"),
        (
            "--data digits --method standard --dropout-draws 0",
            "--dropout-draws must be a whole number of at least 1, got 0",
        ),
        (
            "--data digits --method standard --dropout-draws 3 --dropout 0",
            "--dropout-draws needs dropout, got --dropout 0",
        ),
        (
            "--data digits --method standard --dropout-draws 3 --network resnet18",
            "--dropout-draws needs dropout layers, which",
        ),
        (
            "--data digits --method standard --dropout .1 --network resnet18",
            "--dropout is for lenet, resnet18-dropout, mlp: leave it out",
        ),
        ("--data digits --method standard --dropout 1", "--dropout must be at least 0 and below 1, got 1.0"),
        ("--data digits --method standard --deep-kernel --dropout .1", "--deep-kernel draws from its process"),
        (
            "--data digits --method udp --eps 1 --alpha 1 --steps 1 --measure mutual-information",
            "--measure mutual-information needs several members: give --members, --dropout-draws",
        ),
        ("--data digits --method standard --fraction 2", "--fraction must be above 0 and at most 1, got 2.0"),
        ("--data digits --method standard --epochs 0", "--epochs must be a whole number of at least 1, got 0"),
        ("--data digits --method standard --batch 0", "--batch must be a whole number of at least 1, got 0"),
        ("--data digits --method standard --seed -1", "--seed must be a whole number from 0 to 2^63 - 1, got -1"),
        ("--data digits --method standard --capacity 0", "--capacity must be a whole number of at least 1, got 0"),
        ("--data digits --method standard --validate-every 0", "--validate-every must be a whole number of at least"),
        (
            "--data digits --method standard --validate-eps nan",
            "--validate-eps must be a number of at least 0, got nan",
        ),
        (f"{DIGITS_UDP} --eps -1 --alpha .1 --steps 2", "--eps must be a number of at least 0, got -1.0"),
        (f"{DIGITS_UDP} --eps -.1", "--eps must be a number of at least 0, got -0.1"),
        (f"{DIGITS_UDP} --eps nan", "--eps must be a number of at least 0, got nan"),
        (f"{DIGITS_UDP} --eps .1 --alpha 0 --steps 2", "--alpha must be a number above 0, got 0.0"),
        ("--data digits --method trades --weight -1", "--weight must be a number of at least 0, got -1"),
        (f"{DIGITS_UDP} --eps .1 --alpha .1 --steps 0", "--steps must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_words_are_one_sentence(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert refused(f"train {words}", capsys).startswith(sentence)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("low", "high", "advice"),
    [(0, 255, "divide them by 255, or give --box open if all"), (-1, 1, "rescale them, or give --box open if all")],
)
def test_pixels_of_another_range_are_refused_before_training(
    low: float, high: float, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    images = np.linspace(low, high, 40 * 64, dtype=np.float32).reshape(40, 1, 8, 8)
    np.savez("images.npz", X=images, y=np.arange(40) % 2)
    said = refused("train --data images.npz --network mlp --method udp --eps .1", capsys)
    assert said.startswith("pixels of --data must be from 0 to 1, got")
    assert advice in said
    describe(Train("images.npz", "udp", network="mlp", eps=0.1, box="open"))


@pytest.mark.parametrize(
    ("labels", "note"),
    [
        ([0.5, 1.5], "labels are numbers with decimals, 0.5, 1.5 (2 classes for"),
        (range(10), "classes have few rows (10 classes for"),
        ([3, 7], None),
    ],
)
def test_labels_that_may_be_a_measurement_are_worth_a_warning(labels: Sequence[float], note: str | None) -> None:
    rows = [f"{row * 0.37 % 1:.3f},{labels[row % len(labels)]}" for row in range(40)]
    Path("t.csv").write_text("\n".join(["a,label", *rows]))
    notes = notes_on(describe(Train("t.csv", "standard"))[2])
    assert [said.startswith(note) for said in notes] == [True] if note else not notes


@pytest.mark.parametrize("words", ["resume nowhere", "runs", "runs nowhere", "export nowhere --to a.onnx"])
def test_what_is_not_there_is_one_sentence(words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    refused(words, capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.*differs from the published")
def test_published_settings_hold_where_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEMARGIN_DATA", str(tmp_path))
    write_idx(tmp_path / "fashion-mnist")
    write_cifar10(tmp_path / "cifar-10-batches-py")
    write_svhn(tmp_path)
    fashion = describe(Train("fashion-mnist", "standard"))[1]
    assert (fashion.plan.length, fashion.plan.descent, fashion.plan.batch) == (Epochs(100), Adam(0.001), 256)
    cifar = describe(Train("cifar-10", "standard", augment=True, average="ema:.9", mixed=True, latent=True))[1]
    assert (cifar.plan.length, cifar.plan.descent) == (Epochs(60), SGD(0.15, Triangle()))
    assert (cifar.plan.average, cifar.plan.mixed, cifar.place) == (EMA(0.9), True, BeforeHead())
    svhn = describe(
        Train("svhn", "udp", eps=2.0, alpha=0.1, steps=3, norm="l2", cut="encoder", average="swa", schedule="multistep")
    )[1]
    assert svhn.network.he_normal
    assert svhn.method.perturb.ball.box.is_open
    assert (svhn.plan.average, svhn.plan.descent.schedule) == (SWA(), Multistep())
    assert fashion.plan.average == NoAverage()
