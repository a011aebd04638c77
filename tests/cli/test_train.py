import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from command import refused, widemargin
from widemargin.data.local import LocalData
from widemargin.data.local_files import Npz
from widemargin.io.export import trained
from widemargin.io.load import load_model
from widemargin.measure.separation import separation
from widemargin.runs.folder import RunFolder

UDP = "--data digits --fraction .1 --method udp --eps .2 --alpha .1 --steps 2"


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


def test_eps_auto_follows_from_the_separation_of_the_training_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    np.savez("own.npz", x=(rng.normal(size=(90, 2)) + 3 * y[:, None]).astype(np.float32), y=y)
    words = "train --data own.npz --method {} --eps auto --norm l2 --epochs 1 --out {}"
    balls = {}
    for method in ("udp", "pgd", "udp-single-step"):
        widemargin(words.format(method, method))
        run = yaml.safe_load(Path(f"{method}/run.yaml").read_text())["run"]["Run"]
        balls[method] = run["method"]["Method"]["perturb"]["Search"]["ball"]["L2"]["radius"]
        assert f"eps auto: {balls[method]:g}" in capsys.readouterr().out
    train = LocalData(Npz(str(Path("own.npz").resolve()))).draw().train
    result = separation(train, "l2")
    # Points that climb the uncertainty stop at the boundary; those that climb the loss do not.
    expected = [result.radius(0.5), result.radius(0.25), result.radius(0.5)]
    assert list(balls.values()) == [float(f"{radius:.3g}") for radius in expected]
    before = Path("udp/run.yaml").read_bytes()
    widemargin("resume udp")
    widemargin(words.format("udp", "udp"))
    assert Path("udp/run.yaml").read_bytes() == before


def test_eps_auto_is_refused_where_it_means_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("same.csv").write_text("a,label\n" + "1,x\n1,y\n" * 30)
    assert "`widemargin separation same.csv` lists them" in refused(
        "train --data same.csv --method udp --eps auto", capsys
    )
    assert "give --eps as a number, got auto" in refused(
        "train --data same.csv --method udp --eps auto --eps-column a=1", capsys
    )
    assert "--latent or --cut give a number" in refused("train --data digits --method udp --eps auto --latent", capsys)
    assert "standard takes no --eps" in refused("train --data digits --method standard --eps auto", capsys)
    assert "--eps must be a number such as .03 or 8/255, got aut" in refused(
        "train --data digits --method udp --eps aut", capsys
    )
