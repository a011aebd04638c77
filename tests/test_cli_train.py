import inspect
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from cases import WITH_BALL, WITHOUT_BALL
from widemargin import SGD, Adam, Epochs, Linf, cli, recipes
from widemargin.cli.describe import MEASURES, describe
from widemargin.cli.verbs.train import Train
from widemargin.data.images import ImageSet
from widemargin.io.export import trained
from widemargin.io.load import load_model
from widemargin.runs.folder import RunFolder
from widemargin.training.plan import EMA, SWA, Multistep, NoAverage, Triangle
from widemargin.uncertainty.estimators import BeforeHead

WORDS = {"eps": 0.2, "alpha": 0.1, "steps": 2, "weight": 0.5, "patience": 1, "scale": 0.1, "measure": "gap"}
STANDARD, DIGITS_UDP = "--data digits --method standard", "--data digits --method udp"
UDP = "--data digits --fraction .1 --method udp --eps .2 --alpha .1 --steps 2"


def widemargin(words: str) -> None:
    cli.main(words.split())


def refused(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        widemargin(words)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error.removeprefix("widemargin: ")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_train_go_on_list_and_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    widemargin(f"train {UDP} --epochs 2 --tensorboard")
    (folder,) = (tmp_path / "runs").iterdir()
    kept = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    files = {"run.yaml", "records.jsonl", "figures.json", "tensorboard"}
    assert kept == files | {f"{name}.safetensors" for name in ("checkpoint", "best", "last")}
    assert yaml.safe_load((folder / "run.yaml").read_text())["key"] == folder.name
    said = capsys.readouterr().out
    assert "epoch 1: clean" in said
    assert re.search(r"test: clean [\d.]+ %, robust [\d.]+ % \(PGD-10 linf 0.1\)", said)
    assert f"Next: widemargin audit {folder.relative_to(tmp_path)} --eps 0.1" in said
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    widemargin(f"train {UDP} --epochs 2")
    widemargin(f"resume {folder.name}")
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    widemargin("runs")
    assert folder.name in capsys.readouterr().out
    widemargin(f"export {folder.name} --to model.safetensors --weights last")
    _, module = trained(RunFolder(folder), "last")
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in load_file("model.safetensors").items())
    widemargin(f"export {folder} --to model.pt2")
    points = torch.rand(5, 1, 8, 8)
    _, best = trained(RunFolder(folder), "best")
    torch.testing.assert_close(torch.export.load("model.pt2").module()(points), best(points))
    assert "--to must end in" in refused(f"export {folder} --to model.h5", capsys)


def test_the_same_words_make_the_same_run_and_others_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = f"train {UDP} --epochs 1 --out here"
    widemargin(words)
    widemargin(words)
    assert "here holds another run" in refused(f"{words} --seed 1", capsys)


@pytest.mark.parametrize(
    ("words", "members"),
    [
        ("--members 2 --measure mutual-information", "EnsembleSpec(count=2)"),
        ("--dropout-draws 3", "MCDropoutSpec(draws=3, renewal=PerSearch(), over=EveryDropout())"),
    ],
)
def test_train_resume_and_export_several_members(words: str, members: str, tmp_path: Path) -> None:
    widemargin(f"train {UDP} --epochs 1 --out here {words}")
    before = Path("here/last.safetensors").read_bytes()
    widemargin("resume here")
    assert Path("here/last.safetensors").read_bytes() == before
    trial, network = trained(RunFolder(tmp_path / "here"), "last")
    assert repr(trial.estimator) == members
    widemargin("export here --to model.pt2 --weights last")
    widemargin("export here --to model.safetensors --weights last")
    points = torch.rand(5, 1, 8, 8)
    torch.testing.assert_close(torch.export.load("model.pt2").module()(points), network(points))
    torch.testing.assert_close(network(points).exp().sum(-1), torch.ones(5))
    assert load_file("model.safetensors").keys() == network.state_dict().keys()


def train_a_deep_kernel_on_a_table() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 80)
    np.savez("own.npz", x=(rng.normal(0, 0.3, (80, 3)) + labels[:, None]).astype(np.float32), y=labels)
    widemargin("train --data own.npz --method udp --eps .1 --alpha .1 --steps 1 --epochs 2 --out here --deep-kernel")


def test_train_a_deep_kernel_on_a_table() -> None:
    train_a_deep_kernel_on_a_table()
    trial, network = trained(RunFolder(Path("here")), "last")
    assert repr(trial.network).startswith("ResidualMLPSpec(inputs=3, classes=2, width=64")
    widemargin("export here --to model.safetensors --weights last")
    assert load_file("model.safetensors").keys() == network.state_dict().keys()
    widemargin("export here --to model.pt2 --weights last")
    program, own_reader = torch.export.load("model.pt2").module(), load_model("model.pt2").network
    for rows in (1, 5, 300):
        points = torch.randn(rows, 3)
        for answer in (program(points), own_reader(points)):
            torch.testing.assert_close(answer, network(points), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_onnx_of_a_deep_kernel() -> None:
    onnx = pytest.importorskip("onnx")
    train_a_deep_kernel_on_a_table()
    widemargin("export here --to model.onnx")
    onnx.checker.check_model(onnx.load("model.onnx"))
    _, network = trained(RunFolder(Path("here")), "best")
    own_reader = load_model("model.onnx").network
    for rows in (1, 5, 300):
        points = torch.randn(rows, 3)
        torch.testing.assert_close(own_reader(points), network(points), rtol=0, atol=1e-5)
    widemargin("audit model.onnx --data own.npz --eps .1 --budget 10s --out audited")
    assert Path("audited/audit.json").exists()


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


@pytest.mark.slow
def test_onnx(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    widemargin(f"train {UDP} --epochs 1 --out here")
    widemargin("export here --to model.onnx")
    model = onnx.load("model.onnx")
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == ["points"]


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
    ("words", "sentence"),
    [
        (
            "--data digits --method udp --eps .2",
            "udp needs --alpha and --steps: it takes --eps, --alpha, --steps, --measure",
        ),
        ("--data digits --method udp --eps 1 --alpha 1 --steps 1 --measure doubt", "--measure must be one of entropy"),
        ("--data digits --method standard --eps .2", "standard takes no --eps: it takes nothing"),
        ("--data digits --method fgsm --eps .2 --weight 1", "fgsm takes no --weight: it takes --eps"),
        ("--data digits --method upd", "there is no method named upd: did you mean udp?"),
        ("--data digts --method standard", "--data must be one of"),
        ("--data digits --method standard --network mlp", "mlp is for tables"),
        ("--data digits --method standard --network vgg", "--network must be one of"),
        ("--data digits --method standard --network none.py:Net", "none.py does not exist"),
        (
            "--data digits --method standard --width 3",
            "--width is for resnet18, resnet18-dropout, resnet18-he, mlp: leave it out",
        ),
        ("--data digits --method standard --average median", "--average must be ema"),
        ("--data digits --method standard --latent --cut encoder", "--latent and --cut say the same"),
        ("--data digits --method standard --batch 5000", "the batch size (--batch) must be in 1..1300"),
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


@pytest.mark.parametrize("words", ["resume nowhere", "runs", "runs nowhere", "export nowhere --to a.onnx"])
def test_what_is_not_there_is_one_sentence(words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    refused(words, capsys)
    assert not list(tmp_path.iterdir())


def test_published_settings_hold_where_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = ImageSet("digits").draw()
    monkeypatch.setattr(ImageSet, "draw", lambda self: digits)
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


def test_own_data_and_own_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 120)
    points = rng.normal(0, 0.3, (120, 3)) + labels[:, None]
    rows = [",".join([*map(str, point), str(label)]) for point, label in zip(points, labels, strict=True)]
    Path("own.csv").write_text("\n".join(["a,b,c,kind", *rows]) + "\n")
    Path("own.py").write_text(
        "from torch import nn\ndef net(): return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))\n"
    )
    words = "--data own.csv --label kind --method pgd --eps .1 --alpha .05 --steps 3 --epochs 15 --lr .03"
    widemargin(f"train {words} --out a")
    widemargin(f"train {words} --out b --network own.py:net --cut 1 --schedule cosine --mixed --average ema:.9")
    for folder in (tmp_path / "a", tmp_path / "b"):
        figures = json.loads((folder / "figures.json").read_text())
        assert figures["clean"] > 0.8
        assert figures["clean"] >= figures["robust"] if "robust" in figures else folder.name == "b"
    Path("own.py").write_text("changed = True")
    assert "must be as it was when the run began" in refused("resume b", capsys)
    Path("own.csv").write_text("\n".join(["a,b,c,kind", *rows[:-1]]) + "\n")
    assert "the data must be as it was" in refused("resume a", capsys)
