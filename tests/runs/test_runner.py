import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from safetensors.torch import save_file
from torch import Tensor, nn

from widemargin import (
    OPEN,
    SGD,
    Adam,
    Dataset,
    Ensemble,
    Epochs,
    Linf,
    MCDropout,
    Plan,
    Single,
    Updates,
    at_input,
    laplace,
    udp,
)
from widemargin.data.images import ImageSet
from widemargin.data.toy import LMS5
from widemargin.files import read_tensors as read
from widemargin.io.export import write_network
from widemargin.measure.accuracy import accuracy
from widemargin.measure.robustness import pgd_attack
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.named import LeNetSpec, ResNetSpec
from widemargin.recipes import standard
from widemargin.report.verdicts import Outcome
from widemargin.rng import Rng
from widemargin.runs.fit import fit
from widemargin.runs.folder import Line, RunFolder
from widemargin.runs.prepare import prepare
from widemargin.runs.run import Run, Validation
from widemargin.runs.runner import Pace, run_training
from widemargin.runs.stop import AtEpoch, AtUpdate, Stopped
from widemargin.runs.user_network import UserNetwork
from widemargin.training.loop import Diverged, Record
from widemargin.training.plan import SWA, Average, NoAverage
from widemargin.uncertainty.cuts import after
from widemargin.uncertainty.estimators import BeforeHead

DIGITS = ImageSet("digits", fraction=0.2)
PLAN = Plan(Epochs(4), Adam(0.003), batch=32)
ATTACKED = Validation(2, pgd_attack(Linf(0.1), 0.05, 2))
TRIAL = Run(
    DIGITS, LeNetSpec(side=8), udp(Linf(0.1), 0.03, 2), PLAN, validation=Validation(2, pgd_attack(Linf(0.1), 0.05, 2))
)
HURRIED = Pace(0.0, 0.0)


class Looking:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def begin(self, done: int, updates: int) -> None:
        self.seen.append((done, updates))

    def updated(self, record: Record) -> None:
        self.seen.append(record.update)

    def validated(self, line: Line) -> None:
        self.seen.append(line["epoch"])

    def end(self) -> None:
        self.seen.append("end")


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_a_run_leaves_all_that_it_promises(tmp_path: Path) -> None:
    looking, folder = Looking(), RunFolder(tmp_path / "new" / "run")
    outcome = run_training(prepare(TRIAL), folder, [looking])
    losses, validations = ([line for line in folder.lines() if key in line] for key in ("loss", "clean"))
    assert [line["update"] for line in losses] == list(range(1, 37))
    assert [(line["update"], line["epoch"]) for line in validations] == [(18, 2), (36, 4)]
    assert all(0 <= line["robust"] <= line["clean"] <= 1 for line in validations)
    assert outcome.records == folder.lines()
    assert outcome.figures == folder.read_figures()
    best = max(validations, key=lambda line: line["robust"])
    assert read(folder.best)[1] == {"key": TRIAL.key, **best}
    assert read(folder.last)[1]["update"] == 36
    assert accuracy(outcome.best, DIGITS.draw().validation) == best["clean"]
    assert looking.seen == [(0, 36), *range(1, 18), 2, *range(18, 36), 4, 36, "end"]
    assert (outcome.update, outcome.finished) == (36, True)
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    again = run_training(prepare(TRIAL), folder, [watcher := Looking()])
    assert watcher.seen == [(36, 36), "end"]
    assert same(again.network, outcome.network)
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before


def test_files_change_nothing(tmp_path: Path) -> None:
    inside, outside = run_training(prepare(TRIAL), RunFolder(tmp_path / "a")), run_training(prepare(TRIAL))
    assert same(inside.network, outside.network)
    assert same(inside.best, outside.best)
    assert (inside.records, inside.figures) == (outside.records, outside.figures)


def test_a_latent_space_and_an_average_with_batch_norm(tmp_path: Path) -> None:
    trial = replace(
        TRIAL,
        network=ResNetSpec(channels=1, width=2),
        place=BeforeHead(),
        method=udp(Linf(1.0, OPEN), 0.3, 2),
        plan=Plan(Epochs(1), SGD(0.05), batch=64, average=SWA(0.2)),
    )
    outcome = run_training(prepare(trial), RunFolder(tmp_path / "a"), pace=HURRIED)
    assert outcome.network is not outcome.best
    assert same(outcome.network, outcome.best)
    assert outcome.records[-1]["epoch"] == 1


def test_a_folder_is_for_one_run(tmp_path: Path) -> None:
    trial, folder = replace(TRIAL, plan=replace(PLAN, length=Updates(2))), RunFolder(tmp_path / "a")
    run_training(prepare(trial), folder)
    with pytest.raises(ValueError, match=f"holds another run, {trial.key}, this one is"):
        run_training(prepare(replace(trial, seed=1)), folder)
    with FileLock(folder.path / ".lock"), pytest.raises(ValueError, match="is being trained by another process"):
        run_training(prepare(trial), folder)
    other = tmp_path / "b"
    other.mkdir()
    (other / "thesis.tex").touch()
    with pytest.raises(ValueError, match="must be empty or hold this run, got other files"):
        run_training(prepare(trial), RunFolder(other))
    with pytest.raises(ValueError, match="must be a folder, got a file"):
        run_training(prepare(trial), RunFolder(other / "thesis.tex"))
    task = prepare(trial)
    with pytest.raises(ValueError, match="the data must be as it was when the run"):
        run_training(replace(task, description={**task.description, "data": {"rows": 3}}), folder)


def files(folder: RunFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.path.iterdir()}


@pytest.mark.parametrize("average", [NoAverage(), SWA(0.2)], ids=repr)
def test_stops_are_exact_parts_of_one_run(average: Average, tmp_path: Path) -> None:
    trial = replace(TRIAL, plan=replace(PLAN, average=average))
    whole, staged = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "staged")
    undisturbed = run_training(prepare(trial), whole)
    for until, update in ((AtUpdate(5), 5), (AtEpoch(1), 9), (AtEpoch(1), 9), (AtEpoch(2), 18)):
        outcome = run_training(prepare(trial), staged, until=until)
        assert (outcome.update, outcome.finished, outcome.figures) == (update, False, {})
        assert outcome.records == undisturbed.records[: len(outcome.records)]
        assert same(outcome.network, run_training(prepare(trial), until=until).network)
    assert accuracy(outcome.best, DIGITS.draw().validation) == outcome.records[-1]["clean"]
    assert run_training(prepare(trial), staged, until=AtEpoch(100)).finished
    assert files(staged) == files(whole)


class Leaving(Looking):
    def updated(self, record: Record) -> None:
        super().updated(record)
        if record.update == 18:
            raise Stopped


def test_who_watches_may_leave_and_all_is_saved(tmp_path: Path) -> None:
    whole, left = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "left")
    with pytest.raises(Stopped):
        run_training(prepare(TRIAL), left, [leaving := Leaving()])
    assert leaving.seen[-2:] == [18, "end"]
    assert read(left.checkpoint)[1]["update"] == 18
    run_training(prepare(TRIAL), left)
    run_training(prepare(TRIAL), whole)
    assert files(left) == files(whole)


def as_before_checksums(folder: RunFolder) -> None:
    """As files were written before they had checksums, and before a checkpoint remembered the records."""
    folder.description.write_text(folder.description.read_text().partition("\n")[2])
    figures = folder.read_figures()
    if figures is not None:
        folder.figures.write_text(json.dumps(figures, indent=1) + "\n")
    for path in (folder.checkpoint, folder.best, folder.last):
        tensors, note = read(path)
        if "more" in note:
            note["more"] = {name: note["more"][name] for name in ("best", "records")}
        kept = {name: value for name, value in tensors.items() if not name.startswith("more/")}
        total = 0
        for name in sorted(kept):
            total = zlib.crc32(kept[name].flatten().view(torch.uint8).numpy().data, zlib.crc32(name.encode(), total))
        save_file(kept, path, {"widemargin": json.dumps({**note, "checksum": total})})


def test_a_run_from_before_there_were_checksums_goes_on(tmp_path: Path) -> None:
    whole, old = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "old")
    run_training(prepare(TRIAL), whole)
    run_training(prepare(TRIAL), old, until=AtUpdate(20))
    as_before_checksums(old)
    assert old.lines()[-1]["update"] == 20
    run_training(prepare(TRIAL), old)
    new = files(whole)
    new[old.description.name] = new[old.description.name].partition(b"\n")[2]
    assert files(old) == new
    as_before_checksums(whole)
    before = files(whole)
    run_training(prepare(TRIAL), whole)
    assert files(whole) == before
    whole.records.write_bytes(b"")
    with pytest.raises(ValueError, match=r"records.jsonl must have at least \d+ bytes, got 0: delete checkpoint"):
        run_training(prepare(TRIAL), whole)


def test_divergence_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    trial = replace(TRIAL, plan=Plan(Epochs(3), SGD(1e30), batch=32), method=standard())
    folder = RunFolder(tmp_path / "a")
    with pytest.raises(Diverged, match=r"the loss must be finite, .*; the checkpoint of update \d+ is kept$"):
        run_training(prepare(trial), folder, pace=HURRIED)
    assert read(folder.checkpoint)[1]["update"] >= 1
    assert all(value.isfinite().all() for value in read(folder.checkpoint)[0].values())


SHORT = Plan(Updates(30), Adam(0.05))


def net() -> nn.Module:
    with Rng.seeded(1).as_global():
        return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))


def test_fit_takes_a_cloud_a_pair_or_a_description_and_they_agree() -> None:
    cloud = LMS5(count=60).draw()
    outcomes = [
        fit(net(), data, udp(Linf(0.1, OPEN), 0.05, 2), SHORT)
        for data in (cloud, (cloud.points, cloud.labels), LMS5(count=60))
    ]
    assert all(same(outcome.network, outcomes[0].network) for outcome in outcomes)
    assert accuracy(outcomes[0].network, cloud) > 0.9
    assert outcomes[0].best is outcomes[0].network
    assert outcomes[0].figures == {}


def test_fit_trains_a_module_in_place_wherever_it_is_cut() -> None:
    module = net()
    before = module[0].weight.detach().clone()
    fit(Single(after(module, 2)), LMS5(count=60), udp(Linf(0.1, OPEN), 0.05, 2), SHORT)
    assert not torch.equal(module[0].weight, before)


def test_fit_goes_on_in_its_folder(tmp_path: Path) -> None:
    def run(updates: int) -> Outcome:
        return fit(net(), LMS5(count=60), standard(), SHORT, out=tmp_path / str(updates))

    first, again = run(30), run(30)
    assert same(first.network, again.network)
    assert first.records == again.records
    with pytest.raises(ValueError, match="holds another run"):
        fit(net(), LMS5(count=61), standard(), SHORT, out=tmp_path / "30")


def test_fit_of_descriptions_is_a_trial(tmp_path: Path) -> None:
    trial = Run(LMS5(), MLPSpec((2, 4, 2)), standard(), SHORT, 3)
    fitted = fit(MLPSpec((2, 4, 2)), LMS5(), standard(), SHORT, 3, tmp_path / "a")
    assert same(fitted.network, run_training(prepare(trial), RunFolder(tmp_path / "a")).network)


def test_parts_are_validated() -> None:
    outcome = fit(LeNetSpec(side=8), DIGITS.draw(), standard(), replace(PLAN, length=Epochs(2)))
    assert outcome.figures.keys() == {"clean"}
    assert [line["epoch"] for line in outcome.records if "clean" in line] == [1, 2]


OWN = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 10))

def needs(width): return nn.Linear(width, 2)
def thing(): return 3
"""


def test_a_network_of_ones_own_file_follows_the_seed_and_the_file(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    shape = UserNetwork.at(f"{path}:Net")

    def weight(seed: int) -> Tensor:
        return shape.build(Rng.seeded(seed).generators[0])[1].weight

    before = torch.get_rng_state()
    assert torch.equal(weight(0), weight(0))
    assert not torch.equal(weight(0), weight(1))
    assert torch.equal(torch.get_rng_state(), before)
    for place, sentence in {
        "Nothing": "must have a class or function Nothing, got nn, Net, needs, thing",
        "needs": "must make a network without arguments, got TypeError",
        "thing": "must be a torch.nn.Module, got a int",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            UserNetwork.at(f"{path}:{place}").build(Rng.seeded(0).generators[0])
    path.write_text(OWN + "\n")
    with pytest.raises(ValueError, match="must be as it was when the run began, but it has changed"):
        weight(0)
    path.write_text("import nothing_of_this_name")
    with pytest.raises(ValueError, match="must be a Python file that can be imported, got ModuleNotFoundError"):
        UserNetwork.at(f"{path}:Net").build(Rng.seeded(0).generators[0])
    for place, sentence in {
        "own:Net": "must be given as my_file.py:MyNet",
        "none.py:Net": "none.py does not exist",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            UserNetwork.at(place)


def test_points_alone_have_nothing_to_validate() -> None:
    assert isinstance(LMS5().draw(), Dataset)
    assert all("clean" not in line for line in fit(net(), LMS5(), standard(), SHORT).records)


@pytest.mark.parametrize("kind", ["ensemble", "dropout", "laplace"])
def test_members_leave_the_library_as_one_network(kind: str, tmp_path: Path) -> None:
    cloud = LMS5(count=40).draw()
    mlp = MLPSpec((2, 8, 2), dropout=0.3 * (kind == "dropout")).build(Rng.seeded(0).generators[0])
    networks = {
        "ensemble": lambda: Ensemble([mlp, net()]),
        "dropout": lambda: MCDropout(at_input(mlp), 3),
        "laplace": lambda: laplace(at_input(mlp), cloud, 3),
    }
    network = networks[kind]().eval()
    write_network(network, (2,), tmp_path / "model.pt2")
    again = torch.export.load(tmp_path / "model.pt2").module()
    torch.testing.assert_close(again(cloud.points), network(cloud.points))


class ByLength(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        # A decision by values cannot be traced.
        return self.linear(points) if bool(points.sum() > 0) else -self.linear(points)


def test_a_network_that_cannot_be_traced_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot be written as \.pt2 for batches of any size") as refused:
        write_network(ByLength().eval(), (4,), tmp_path / "model.pt2")
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())
