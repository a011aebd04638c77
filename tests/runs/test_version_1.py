"""Folders that the code before version 2 wrote (commit 9ea51b0): read, continued, audited and compared."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from command import widemargin
from widemargin import OPEN, Adam, Epochs, Linf, Plan, pgd, udp
from widemargin.data.local import LocalData
from widemargin.data.local_files import Table
from widemargin.files import Damaged, sealed_text
from widemargin.io.load import load_model
from widemargin.networks.mlp import MLPSpec
from widemargin.perturb.pgd import pgd_search
from widemargin.report.store import Store
from widemargin.runs.fit import fit
from widemargin.runs.folder import RunFolder
from widemargin.runs.keys import VERSION
from widemargin.runs.prepare import prepare
from widemargin.runs.run import Run, Validation
from widemargin.runs.run_yaml import read_description, read_run
from widemargin.runs.runner import run_training
from widemargin_studies import app_overfitting_fashion, clean_accuracy, tab2

SAMPLES = Path(__file__).parent / "version_1"
LONG = Path(__file__).parents[2] / "results" / "long"
DONE, HALF = "fadfbfd393e65ff8", "81877be72fecab46"
ATTACK = pgd_search(Linf(0.1, OPEN), 0.025, 10)


def run(seed: int) -> Run:
    plan = Plan(Epochs(4), Adam(0.01), batch=16)
    method = udp(Linf(0.1, OPEN), 0.05, 2)
    return Run(
        LocalData(Table("table.csv")), MLPSpec((2, 4, 4, 2)), method, plan, seed, validation=Validation(1, ATTACK)
    )


@pytest.fixture(autouse=True)
def _among_old_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(SAMPLES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("name", "seed"), [(DONE, 0), (HALF, 1)])
def test_they_are_found_and_read(name: str, seed: int) -> None:
    folder = RunFolder.of(run(seed), Path("runs"))
    assert folder.path.name == name
    assert read_run(folder.description) == run(seed)
    described = read_description(folder.description)
    assert (described["version"], described["key"], [*described["run"]]) == (VERSION, name, ["Run"])


def test_half_a_run_goes_on_in_its_folder_to_the_same_end() -> None:
    folder = RunFolder.of(run(1), Path("runs"))
    before = folder.description.read_text()
    outcome = run_training(prepare(run(1)), folder)
    losses = [line["loss"] for line in outcome.records if "loss" in line]
    # As that code ended without a stop.
    assert losses[-4:] == pytest.approx([0.4954709113, 0.4385721684, 0.4805656672, 0.5558009148], abs=1e-5)
    assert outcome.figures == {"clean": pytest.approx(23 / 24), "robust": pytest.approx(23 / 24)}
    assert folder.description.read_text() == before
    assert sorted(path.name for path in Path("runs").iterdir()) == sorted([DONE, HALF])


def test_half_a_run_without_its_description_goes_on() -> None:
    folder = Path("runs") / HALF
    (folder / "run.yaml").unlink()
    widemargin(f"resume runs/{HALF}")
    assert (folder / "figures.json").exists()
    assert yaml.safe_load((folder / "run.yaml").read_text())["key"] == HALF
    assert read_run(folder / "run.yaml") == run(1)


def test_they_are_listed_exported_and_audited(capsys: pytest.CaptureFixture[str]) -> None:
    widemargin("runs")
    listed = capsys.readouterr().out
    assert all(word in listed for word in (DONE, HALF, "not done"))
    widemargin(f"export runs/{DONE} --to model.safetensors")
    assert load_model(f"runs/{DONE}").name == "udp on table.csv, mlp, seed 0"
    widemargin(f"audit runs/{DONE} --eps .05 --points 3 --out again")
    assert json.loads(Path("again/audit.json").read_text())["n"] == 3


def test_they_are_compared_beside_new_ones(capsys: pytest.CaptureFixture[str]) -> None:
    old = Path("old")
    Path("runs").rename(old)
    Path("runs").mkdir()
    new = RunFolder.of(run(2), Path("runs"))
    run_training(prepare(run(2), title="udp on table.csv, mlp, seed 2"), new)
    assert yaml.safe_load(new.description.read_text())["version"] == VERSION
    widemargin(f"compare old/{DONE} runs --to both.md")
    rows = [line for line in Path("both.md").read_text().splitlines() if line.startswith("| udp")]
    # They differ in nothing but their seed.
    assert len(rows) == 1
    assert "| 2 |" in rows[0]


def test_what_was_fitted_from_python_is_the_same_run() -> None:
    network = nn.Linear(2, 2)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[0.1, -0.2], [0.3, 0.4]]))
        network.bias.zero_()
    points, labels = torch.arange(16.0).view(8, 2) / 16, torch.arange(8) % 2
    plan = Plan(Epochs(2), Adam(0.01), batch=4)
    outcome = fit(network, (points, labels), pgd(Linf(0.1), 0.05, 2), plan, out="fitted")
    assert outcome.finished
    assert len(outcome.records) == 4


def test_another_run_is_still_refused() -> None:
    with pytest.raises(ValueError, match=f"holds another run, {HALF}, this one is {run(3).key}"):
        run_training(prepare(run(3)), RunFolder(Path("runs") / HALF))


def test_a_later_version_is_one_sentence() -> None:
    path = Path("run.yaml")
    path.write_text(sealed_text("version: 99\nkey: a\n"))
    with pytest.raises(ValueError, match=r"^run.yaml must be of version 1 to 2, got 99: update widemargin$") as raised:
        read_description(path)
    assert not isinstance(raised.value, Damaged)


def test_long_runs_are_known_to_their_studies() -> None:
    store = Store(LONG)
    assert app_overfitting_fashion.FULL.missing(store) == 0
    done = [tab2.ONE.judged_at(tab2.ONE.runs(cell)[0], store) for cell in tab2.ONE.cells]
    assert min(epoch or 0 for epoch in done) >= 60
    folders = {RunFolder.of(own, LONG / "trained").path.name for own in runs_of_studies()}
    assert {path.name for path in (LONG / "trained").iterdir()} <= folders


def runs_of_studies() -> list[Run]:
    studies = (tab2.ONE, app_overfitting_fashion.FULL, clean_accuracy.APP_ONE)
    return [own for study in studies for cell in study.cells for own in study.runs(cell)]
