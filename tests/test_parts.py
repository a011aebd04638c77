"""The room test: a norm, a schedule, an estimator, a dataset, an attack and a diagnosis that only this file knows are
parts like any other."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import pytest
import torch
import tyro
from torch import Tensor, nn

import widemargin as wm
from widemargin import OPEN, Adam, Dataset, Epochs, Linf, Plan, pgd
from widemargin.audit_report import AuditReport
from widemargin.cli import main
from widemargin.cli.describe import describe
from widemargin.cli.verbs.train import Train
from widemargin.data.dataset import Examples, Splits
from widemargin.files import read_json, read_note, write_json
from widemargin.measure.diagnostics import Diagnosis, Examined, Finding
from widemargin.networks.mlp import MLPSpec
from widemargin.parts import choice, choices, part
from widemargin.perturb.attack import Attack, Classifier, Perturbed, perturbed
from widemargin.perturb.balls import Ball
from widemargin.perturb.gradient import slope
from widemargin.perturb.objectives import height, margin_loss
from widemargin.perturb.pgd import pgd_search
from widemargin.rng import AnyRng, Rng
from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import prepare
from widemargin.runs.run import Run, Validation
from widemargin.runs.run_yaml import read_run
from widemargin.runs.runner import run_training
from widemargin.runs.stop import AtEpoch
from widemargin.shapes import Encoded, MemberLogits, PerSample, Points
from widemargin.training.plan import Constant
from widemargin.uncertainty.estimators import Place, SingleSpec
from widemargin.uncertainty.network import Network, no_penalty


@choice("schedule")
@dataclass(frozen=True)
class Halving:
    """Half of the learning rate after every fraction of the time."""

    every: float = 0.25

    def __call__(self, done: float) -> float:
        return 0.5 ** math.floor(done / self.every)


@choice("norm")
@dataclass(frozen=True)
class HalfLinf(Ball):
    """Twice the largest feature, so that its balls are those of Linf with half the radius: an answer that is known."""

    def norm(self, delta: Encoded) -> PerSample:
        return 2 * delta.flatten(1).abs().amax(1)

    def dual_norm(self, gradient: Encoded) -> PerSample:
        return gradient.flatten(1).abs().sum(1) / 2

    def steepest(self, gradient: Encoded) -> Encoded:
        return gradient.sign() / 2

    def project(self, delta: Encoded, center: Encoded, radii: PerSample | None = None) -> Encoded:
        return Linf(self.radius / 2, self.box).project(delta, center, None if radii is None else radii / 2)

    def sample(self, center: Encoded, rng: Rng) -> Encoded:
        return Linf(self.radius / 2, self.box).sample(center, rng)


@final
class Tempered(Network):
    """One member, whose logits are divided by a temperature."""

    replicas = 1

    def __init__(self, network: nn.Module, temperature: float) -> None:
        super().__init__()
        self.network, self.temperature = network, temperature

    def encode(self, inputs: Points) -> Encoded:
        return inputs

    def logits(self, encoded: Encoded) -> MemberLogits:
        logits: Tensor = self.network(encoded) / self.temperature
        return logits.unsqueeze(0)

    def penalty(self) -> Tensor:
        return no_penalty(self)


@choice("estimator")
@dataclass(frozen=True)
class TemperedSpec:
    temperature: float = 1.0

    def network(self, build: Callable[[int], nn.Module], place: Place, examples: Examples | None) -> Network:
        return Tempered(build(0), self.temperature)


@part
@dataclass(frozen=True)
class Stripes:
    """Two classes on either side of a line, in three parts."""

    seed: int = 0

    def draw(self) -> Splits:
        rng = torch.Generator().manual_seed(self.seed)
        labels = torch.arange(90) % 2
        points = torch.rand(90, 2, generator=rng) + labels[:, None]
        train, validation, test = (Dataset(points[i::3], labels[i::3]) for i in range(3))
        return Splits(train, validation, test)


@dataclass(frozen=True)
class OneStep:
    """An attack: one steepest step of the margin to the edge of the ball."""

    ball: Ball
    name: str = "one step"

    def __call__(self, model: Classifier, inputs: Points, labels: Tensor, rng: AnyRng) -> Perturbed:
        _, _, uphill = slope(model, inputs, partial(height, margin_loss, labels=labels, targets=None))
        delta = self.ball.project(self.ball.radius * self.ball.steepest(uphill), inputs)
        return perturbed(self.ball, inputs, inputs + delta)


@dataclass(frozen=True)
class OneStepAlone:
    """A suite."""

    def __call__(self, ball: Ball, classes: int, rows_at_once: int = 256) -> tuple[Attack, ...]:
        return (OneStep(ball),)


def _balance(examined: Examined) -> Finding:
    share = float((examined.examples.labels == 0).double().mean())
    return Finding("", "suspicious", f"class 0 has {share:.0%} of the points", "weigh the classes", {"share": share})


BALANCE = Diagnosis("balance", _balance, sanity=True)


def run(ball: Ball, alpha: float) -> Run:
    attack = pgd_search(ball, alpha, 3)
    plan = Plan(Epochs(4), Adam(0.01, Halving()), batch=10)
    estimator = TemperedSpec(2.0)
    return Run(
        Stripes(1), MLPSpec((2, 8, 2)), pgd(ball, alpha, 3), plan, validation=Validation(1, attack), estimator=estimator
    )


RUN = run(HalfLinf(0.2, OPEN), 0.05)


def losses(records: Any) -> list[float]:
    return [line["loss"] for line in records if "loss" in line]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_they_train_are_saved_and_resume(capsys: pytest.CaptureFixture[str]) -> None:
    whole = run_training(prepare(RUN))
    folder = RunFolder.of(RUN, Path("runs"))
    run_training(prepare(RUN, title="stripes"), folder, until=AtEpoch(1))
    assert read_run(folder.description) == RUN
    main(["resume", str(folder.path)])
    assert losses(folder.lines()) == losses(whole.records)
    assert folder.read_figures() == whole.figures
    assert read_note(folder.checkpoint)["key"] == RUN.key
    main(["runs"])
    assert RUN.key in capsys.readouterr().out
    main(["export", str(folder.path), "--to", "model.safetensors"])
    main(["compare", str(folder.path), "--to", "table.md"])
    assert "halflinf" in Path("table.md").read_text()
    main(["audit", str(folder.path), "--eps", ".1", "--points", "3", "--data", str(_table())])
    assert list(Path().rglob("audit.json"))


def test_a_norm_that_is_half_of_linf_gives_the_numbers_of_linf() -> None:
    ours, linf = (run_training(prepare(own)) for own in (RUN, run(Linf(0.1, OPEN), 0.025)))
    assert losses(ours.records) == pytest.approx(losses(linf.records), abs=1e-6)
    assert losses(ours.records) != losses(run_training(prepare(replace(RUN, estimator=SingleSpec()))).records)
    assert losses(ours.records) != losses(run_training(prepare(slow_of(RUN))).records)


def test_an_attack_and_a_diagnosis_audit_are_saved_resumed_and_printed() -> None:
    # Two classes, of which every distance is known: half the sum of the features less 1.5.
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        layer.bias.copy_(torch.tensor([0.0, -1.5]))
    points = torch.rand(6, 2, generator=torch.Generator().manual_seed(0)) + 0.25
    labels = (points.sum(1) > 1.5).long()
    known = (points.sum(1) - 1.5).abs() / 2

    def audited() -> AuditReport:
        return wm.audit(
            layer, (points, labels), [0.1, 0.2], box=OPEN, out="here", attacks=OneStepAlone(), diagnoses=(BALANCE,)
        )

    report = audited()
    assert [one.count for one in report.robust.values()] == [int((known > radius).sum()) for radius in (0.1, 0.2)]
    (finding,) = [one for one in report.findings if one.name == "balance"]
    assert finding.evidence == f"class 0 has {(labels == 0).double().mean():.0%} of the points"
    assert report.result.attacks[0] == "one step"
    (saved,) = Path("here").rglob("findings.json")
    write_json(saved, {"findings": [{**read_json(saved)["findings"][0], "evidence": "as read again"}]})
    assert "as read again" in audited().save("audit.html").read_text()


def slow_of(own: Run) -> Run:
    return replace(own, plan=replace(own.plan, descent=Adam(0.01, Constant())))


def test_the_command_line_offers_them() -> None:
    words = ["--norm", "halflinf", "--schedule", "halving", "--method", "fgsm", "--eps", ".2", "--data", str(_table())]
    described = describe(tyro.cli(Train, args=words))[1]
    assert described.method.perturb.ball == HalfLinf(0.2, OPEN)
    assert described.plan.descent == Adam(0.001, Halving())
    assert choices("estimator")["temperedspec"] is TemperedSpec


def test_help_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    told = capsys.readouterr().out
    for kind in ("norm", "schedule", "network", "average"):
        for word, make in choices(kind).items():
            # Tests and pages register parts of their own.
            assert word in told or not make.__module__.startswith("widemargin.")


@pytest.mark.parametrize("name", ["os.system", "subprocess", "NoSuchPart", "widemargin.cli.main"])
def test_a_file_can_name_nothing_else(name: str) -> None:
    Path("run.yaml").write_text(f"version: 2\nkey: a\nrun: {{{name}: {{}}}}\n")
    with pytest.raises(ValueError, match=f"'{name}' is no part of widemargin: it can be one of Adam"):
        read_run(Path("run.yaml"))


def test_what_cannot_be_a_part_is_one_sentence() -> None:
    with pytest.raises(TypeError, match=r"^a part must be a frozen dataclass, got Loose: decorate it by"):

        @part
        @dataclass
        class Loose:
            pass

    with pytest.raises(TypeError, match=r"^two parts are called Stripes, in .*test_parts and .*: rename one$"):
        part(dataclass(frozen=True)(type("Stripes", (), {"__module__": __name__, "__qualname__": "Others.Stripes"})))


def _table() -> Path:
    splits = Stripes().draw()
    rows = [f"{a},{b},{int(label)}" for (a, b), label in zip(splits.test.points, splits.test.labels, strict=True)]
    path = Path("table.csv")
    path.write_text("\n".join(["a,b,label", *rows]) + "\n")
    return path
