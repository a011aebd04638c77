"""An audit counts right, survives interruption, and repeats nothing."""

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from io import StringIO
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from widemargin.auditing import findings
from widemargin.auditing import runner as module
from widemargin.auditing.chunks import FIRST, Chunk, check_saved, pieces
from widemargin.auditing.clock import Clock
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.result import FORMAT, Audit, Shown
from widemargin.auditing.runner import audit
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Dataset, Examples, Origin
from widemargin.measure import surrogate
from widemargin.measure.diagnostics import DIAGNOSES, Diagnosis, all_findings
from widemargin.perturb.apgd import APGD, TargetedAPGD
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import L2, OPEN, Ball, Box, Linf, Norm
from widemargin.perturb.fmn import FMN
from widemargin.perturb.objectives import margin_loss
from widemargin.perturb.square import Square
from widemargin.perturb.suites import Suite
from widemargin.report.audit_page import page
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.single import Single


@dataclass(frozen=True)
class Quick:
    """The standard's attacks with fewer steps: what they find is tested elsewhere."""

    def __call__(self, ball: Ball, classes: int, rows_at_once: int = 0) -> tuple[Attack, ...]:
        second = TargetedAPGD(ball, targets=classes - 1, steps=10) if classes > 3 else APGD(ball, margin_loss, steps=10)
        return (APGD(ball, steps=20), second, Square(ball, queries=10))


@dataclass(frozen=True)
class Weak:
    """Next to nothing."""

    def __call__(self, ball: Ball, classes: int, rows_at_once: int = 0) -> tuple[Attack, ...]:
        return (APGD(ball, steps=2), Square(ball, queries=1))


@dataclass(frozen=True)
class OnlyFMN:
    def __call__(
        self, norm: Norm, box: Box, classes: int, rows_at_once: int = 0, starts: int = 1
    ) -> tuple[Attack, ...]:
        return (FMN(norm, box, steps=60, targets=min(3, classes - 1)),)


def named(*names: str) -> tuple[Diagnosis, ...]:
    return tuple(one for one in DIAGNOSES if one.name in names)


BALLS = tuple(L2(radius, OPEN) for radius in (0.2, 0.5, 1.0))
EVERY = tuple(one.name for one in DIAGNOSES if one.name != "transfer")


def config(
    balls: tuple[Ball, ...] = BALLS,
    points: int = 1_000,
    seed: int = 0,
    chunk: int = 100,
    standard: Suite = Quick(),  # noqa: B008
    diagnoses: tuple[Diagnosis, ...] = named("modes"),
) -> AuditConfig:
    return AuditConfig(balls, points, seed, chunk, standard, OnlyFMN(), diagnoses)


QUESTION = config(points=24, seed=3, chunk=6)


@pytest.fixture(scope="module", autouse=True)
def quick_surrogate() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surrogate, "UPDATES", 100)
        yield


@pytest.fixture(scope="module")
def whole(quick_surrogate: None, tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return asked(tmp_path_factory.mktemp("whole"))


def subject(classes: int = 4) -> AuditTarget:
    """A linear classifier, whose margins are known, with one point in ten labelled wrong."""
    draws = torch.Generator().manual_seed(0)
    linear = nn.Linear(5, classes)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(classes, 5, generator=draws))
        linear.bias.zero_()
    points = torch.randn(60, 5, generator=draws)
    labels = linear(points).argmax(1)
    labels[::10] = (labels[::10] + 1) % classes
    examples = Dataset(points, labels, tuple("abcd"[:classes]), Origin("memory", "digest"))
    return AuditTarget(Single(at_input(linear)), "linear", "weights", examples, "points")


def true_margins(whom: AuditTarget) -> torch.Tensor:
    linear = next(m for m in whom.network.modules() if isinstance(m, nn.Linear))
    labels = whom.examples.labels
    weight, logits = linear.weight.detach().double(), linear(whom.examples.points).detach().double()
    ways = (logits.gather(1, labels[:, None]) - logits) / (weight[labels][:, None] - weight[None]).norm(dim=-1)
    return ways.masked_fill(torch.arange(logits.shape[1]) == labels[:, None], math.inf).amin(1).clamp_min(0)


def asked(folder: Path, **more: object) -> Audit:
    found = audit(subject(), QUESTION, folder, **more)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_linear_model_gets_its_known_margins(whole: Audit) -> None:
    found, truth = whole, true_margins(subject())
    rows = found.points["row"]
    assert len(set(rows)) == found.n == found.asked == 24
    known = truth[torch.from_numpy(rows)].numpy()
    assert np.allclose(found.points["margin"], known, rtol=0.01, atol=1e-6)
    assert np.all(found.points["certified"] <= found.points["margin"] * (1 + 1e-4))
    assert found.clean.count == int((known > 0).sum()) < 24
    for ball, robust, proven in zip(QUESTION.balls, found.robust, found.certified or (), strict=True):
        # Nobody stands at exactly a radius here.
        assert robust.count == int((known > ball.radius).sum())
        assert proven.count <= robust.count
    broken = sum(map(sum, found.broken_by.values()))
    assert broken == int(((known > 0) & (known <= 1.0)).sum())


def test_what_was_interrupted_goes_on_without_repeating_or_losing_a_point(
    whole: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[int]] = []
    honest = module._asked

    def dying(whom: AuditTarget, question: AuditConfig, rows: torch.Tensor, certify: bool, *more: object) -> Chunk:
        calls.append(rows.tolist())
        if len(calls) == 3:
            raise KeyboardInterrupt
        return honest(whom, question, rows, certify, *more)

    monkeypatch.setattr(module, "_asked", dying)
    with pytest.raises(KeyboardInterrupt):
        asked(tmp_path / "cut")
    again = asked(tmp_path / "cut")
    assert len(calls) == 5, "two chunks, one that was cut, and the two that were left"
    assert calls[2] == calls[3]
    for name, values in whole.points.items():
        assert np.array_equal(values, again.points[name], equal_nan=True), name
    summaries = [{**one.summary(), "seconds": 0} for one in (whole, again)]
    assert summaries[0] == summaries[1]


def partly(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Audit:
    """Ended by a budget after the first few points."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "pieces", lambda *given: islice(pieces(*given), 1))
        return asked(folder, budget=1e6)


def test_a_budget_ends_it_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = partly(tmp_path, monkeypatch)
    assert (found.n, found.asked) == (FIRST, 24)
    assert f"the {FIRST} of 24 points for which there was time" in page(found).summary
    assert "No transfer from a surrogate: the time was up." in page(found).settings
    assert module.TRANSFER not in found.attacks


def test_a_budget_for_not_even_one_point_says_what_it_should_be(tmp_path: Path) -> None:
    found = asked(tmp_path, budget=0.0)
    assert not list(tmp_path.rglob("0*.safetensors"))
    first, *_ = page(found).summary.split(": ")
    assert first.startswith("A budget of 0s is too short to attack a single point of this network, which may take ")
    assert found.too_short.endswith("s.")
    assert found.attacks == ()
    assert found.summary()["robust"] == []
    assert {"modes"} == {one.name for one in found.findings}
    assert asked(tmp_path).n == 24, "and without a budget it goes on"


class Slow(nn.Module):
    """Every pass takes a second of a clock that only it moves."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 4)
        self.now = 0.0

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        self.now += 1.0
        return self.linear(points)


@pytest.mark.parametrize("budget", [60.0, 600.0])
def test_a_budget_is_kept_within_a_quarter(budget: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    monkeypatch.setattr(module.time, "monotonic", lambda: slow.now)
    whom = AuditTarget(Single(at_input(slow)), "slow", "slow", subject().examples, "points")
    calls = [audit(whom, config(BALLS, 24, 3, diagnoses=DIAGNOSES), tmp_path, budget) for _ in range(2)]
    assert all(one is not None for one in calls)
    assert slow.now <= 2 * 1.25 * budget
    last = calls[1]
    assert last is not None
    assert (last.n > 1 and not last.too_short) or "give one of at least" in page(last).summary.split(". ")[0]
    assert 0.9 * slow.now <= last.seconds <= slow.now, "the time that passed, of both"


def test_a_budget_is_filled_with_as_many_points_as_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    rows = torch.arange(100)

    def taken(budget: float | None, seconds: float) -> list[int]:
        nonlocal now
        clock, sizes = Clock(budget, now), list[int]()
        for piece in pieces(rows.split(50), tmp_path, clock, 0.9 * seconds):
            sizes.append(len(piece))
            now += seconds * len(piece)
        return sizes

    assert taken(None, 1.0) == [50, 50]
    assert taken(0.0, 1.0) == [1], "which the clock will end"
    assert taken(20.0, 1.0) == [4, 8, 8]
    assert taken(22.0, 1.0) == [4, 8, 10]
    assert taken(1_000.0, 1.0) == [4, 8, 16, 22, 50]


def test_a_budget_ends_the_diagnoses_and_they_are_made_whole_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = config(BALLS[:1], points=4, seed=3, diagnoses=DIAGNOSES)
    with monkeypatch.context() as patch:
        patch.setattr(module, "SHARE_OF_FINDINGS", 0.0)
        short = audit(subject(), question, tmp_path, budget=1e6)
    assert short is not None
    names = [finding.name for finding in short.findings]
    assert names[:4] == ["inputs in box", "modes", "probabilities", "randomness"]
    assert short.left_out == (*EVERY[4:5], *EVERY[6:]), "with one radius"
    assert short.summary()["findings_left_out"] == list(short.left_out)
    told = page(short)
    assert "None of the 6 diagnoses, of 12, for which there was time gives a reason" in told.summary
    assert told.verdicts[0].evidence.startswith("the time was up; nothing is known of: gradients, loss surface")
    printed = StringIO()
    told.print(Console(file=printed, width=200))
    for text in (told.html(), printed.getvalue()):
        assert "only 6 of 12 diagnoses were made" in text
    later = audit(subject(), question, tmp_path)
    assert later is not None
    names = [finding.name for finding in later.findings]
    assert len(set(names)) == len(names), "each has a name of its own"
    assert set(names) == {*short.left_out, *(finding.name for finding in short.findings)}, "all that had been named"
    assert later.left_out == later.notes == ()
    assert "None of 12 diagnoses" in page(later).summary


def test_a_budget_ends_a_diagnosis_that_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, whom = 0.0, subject()
    monkeypatch.setattr(module.time, "monotonic", lambda: now)

    def tedious(network: Network, some: Examples, attack: object) -> float:
        nonlocal now
        for _ in range(100):
            network(whom.examples.points)
            now += 1.0
        return 1.0

    monkeypatch.setattr(findings, "robust_accuracy", tedious)
    left_out = findings.diagnosed(
        whom, replace(QUESTION, diagnoses=named("modes", "rising")), tmp_path, Clock(10.0, 0.0), 0.3
    ).left_out
    assert now == 3.0
    assert "rising" in left_out


def test_every_diagnosis_has_its_name() -> None:
    whom = subject()
    made = all_findings(whom.network, whom.examples, Linf(0.1, OPEN), [(0.1, 1.0, 60), (0.2, 1.0, 60)])
    assert tuple(finding.name for finding in made) == EVERY


def test_one_can_see_that_it_goes_on(whole: Audit, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    question = config(QUESTION.balls, points=24, seed=3, chunk=12)
    found = audit(subject(), question, tmp_path, on_progress=lambda done, of: told.append((done, of)))
    assert found is not None
    done = [points for points, _ in told]
    assert {of for _, of in told} == {24}
    assert done == sorted(done)
    assert {12, 24} <= set(done)
    assert len({points for points in done if points < 12}) > 1, "within the first chunk"
    # By then it is known how long a point takes.
    assert {points - 12 for points in done if 12 < points < 24} >= set(range(1, 9)), "and within the second"


class _Share:
    """One of two processes, without the other."""

    count = 2

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def wrapped(self, step: nn.Module) -> nn.Module:
        return step

    def mean(self, value: torch.Tensor) -> float:
        return value.item()

    def wait(self) -> None:
        return


def test_processes_share_the_chunks(whole: Audit, tmp_path: Path) -> None:
    assert audit(subject(), QUESTION, tmp_path, processes=_Share(1)) is None  # type: ignore[arg-type]
    files = sorted(path.name for path in tmp_path.rglob("*.safetensors"))
    chunks = QUESTION.chunks(60)
    assert files == sorted(f"{int(chunks[number][0]):06}.safetensors" for number in (1, 3))
    shared = audit(subject(), QUESTION, tmp_path, processes=_Share(0))  # type: ignore[arg-type]
    assert shared is not None
    assert np.array_equal(shared.points["margin"], whole.points["margin"])


class Stairs(nn.Module):
    """Without gradients, so that only what is drawn decides what is found.

    Without matrix products: their rounding depends on how many rows are computed at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(4, 5, generator=torch.Generator().manual_seed(1)))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return ((4 * points).round()[:, None] * self.weight).sum(-1)


def stairs() -> AuditTarget:
    network = Single(at_input(Stairs()))
    points = subject().examples.points
    examples = Dataset(points, network(points).argmax(1), tuple("abcd"), Origin("memory", "digest"))
    return AuditTarget(network, "stairs", "stairs", examples, "points")


def test_a_row_gets_the_same_record_in_every_selection(tmp_path: Path) -> None:
    """Other chunks, other neighbours, another place in the chunk: what is drawn follows from the row."""
    balls = QUESTION.balls[:2]
    fewer, more = (
        audit(stairs(), config(balls, points, seed=3, chunk=chunk), tmp_path / str(points))
        for points, chunk in ((7, 4), (10, 10))
    )
    assert fewer is not None
    assert more is not None
    at = [more.points["row"].tolist().index(row) for row in fewer.points["row"]]
    for name, values in fewer.points.items():
        assert np.array_equal(values, more.points[name][at], equal_nan=True), name
    # The same points as other rows: something is drawn at all.
    order = torch.arange(60).flip(0)
    turned = AuditTarget(stairs().network, "stairs", "stairs", stairs().examples.take(order), "points")
    rows = 59 - torch.from_numpy(fewer.points["row"])
    other = module._asked(turned, config(balls, seed=3), rows, certify=False).points
    assert np.array_equal(other["label"], fewer.points["label"])
    assert not np.array_equal(other["margin"], fewer.points["margin"])


def test_a_transfer_that_refutes_a_certificate_is_an_error() -> None:
    points = {"breaks": np.array([1, 1]), "by": np.array([-1, -1]), "margin": np.array([np.inf, np.inf])}
    moved = findings.Transferred(np.array([0.05, np.inf]), "MLP", 1.0)
    question = config((Linf(0.1),))
    findings.with_surrogate({**points, "row": np.arange(2), "certified": np.array([np.nan, 0.1])}, moved, question, 0)
    points = {"breaks": np.array([1, 1]), "by": np.array([-1, -1]), "margin": np.array([np.inf, np.inf])}
    with pytest.raises(ValueError, match=r"certified up to 0\.07, but a wrong place was found at 0\.05"):
        findings.with_surrogate({**points, "row": np.arange(2), "certified": np.array([0.07, 0.1])}, moved, question, 0)


def test_whom_a_surrogate_breaks_counts_as_broken(tmp_path: Path) -> None:
    """Rounded so finely that the margins are those of a linear network, and no gradient is left."""

    class Masked(nn.Module):
        def forward(self, points: torch.Tensor) -> torch.Tensor:
            lead = (20 * points.sum(1, keepdim=True)).round() / 20
            return torch.cat([lead, -lead], 1)

    points = subject().examples.points
    examples = Dataset(points, (points.sum(1) < 0).long(), ("a", "b"), Origin("memory", "digest"))
    whom = AuditTarget(Single(at_input(Masked())), "masked", "masked", examples, "points")
    question = config(points=20, seed=3, chunk=20, standard=Weak())
    found = audit(whom, question, tmp_path)
    assert found is not None
    counts = found.broken_by[module.TRANSFER]
    assert sum(counts) > 1, "those that one query of Square's has left"
    (finding,) = (one for one in found.findings if one.name == "transfer")
    assert finding.verdict == "wrong"
    assert finding.numbers["gain"] == pytest.approx(sum(counts) / found.n)
    broken = found.points["by"] == found.attacks.index(module.TRANSFER)
    radii = np.array([ball.radius for ball in QUESTION.balls])
    assert np.all(found.points["margin"][broken] <= radii[found.points["breaks"][broken]] * (1 + 1e-4))
    least = (points[found.points["row"]].sum(1).abs() - 0.026) / math.sqrt(5)
    assert np.all(found.points["margin"] >= least.numpy()), "no margin is shorter than is possible"
    again = audit(whom, question, tmp_path)
    assert again is not None
    assert again.summary() == found.summary(), "made once"


def test_another_question_or_other_weights_begin_anew(tmp_path: Path) -> None:
    keys = {subject().key(QUESTION), subject().key(config(QUESTION.balls, 24, 4, 6))}
    other = AuditTarget(subject().network, "linear", "others", subject().examples, "points")
    assert len(keys | {other.key(QUESTION)}) == 3


def test_figures_are_plain_json_with_all_it_takes_to_trust_them(whole: Audit) -> None:
    found = whole
    figures = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert figures["version"] == FORMAT
    assert figures["n"] == 24
    assert [at["eps"] for at in figures["robust"]] == [0.2, 0.5, 1.0]
    assert all(at["low"] <= at["accuracy"] <= at["high"] for at in figures["robust"])
    assert figures["robust"][0]["attacks"] == list(found.attacks)
    assert {finding["verdict"] for finding in figures["findings"]} <= {"fine", "suspicious", "wrong"}
    points = json.loads(json.dumps(found.per_point(), allow_nan=False))
    assert len(points) == 24
    assert {point["by"] for point in points} <= {None, *found.attacks}
    assert {point["breaks"] for point in points} <= {None, 0.2, 0.5, 1.0}


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.images = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.images += tag == "img"

    def handle_data(self, data: str) -> None:
        self.cells.append(data.strip())


def test_the_page_has_every_part(whole: Audit) -> None:
    found = whole
    texts = _Texts()
    texts.feed(page(found).html())
    for words in (
        "Accuracy under AutoAttack",
        "Points broken by each attack",
        "Margins",
        "Class by class, clean and under AutoAttack",
        "proven lower bound",
    ):
        assert words in texts.cells
    assert f"{100 * found.robust[0].fraction:.1f} %" in texts.cells
    # Points that are no images have no pictures of themselves.
    assert texts.images == 2


def test_without_a_certificate_it_says_why(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x.sin()) if bool(x.sum() > 0) else self.linear(x.cos())

    plain = subject()
    odd = AuditTarget(Single(at_input(Odd())), "odd", "odd", plain.examples, "points")
    found = audit(odd, config(QUESTION.balls[:1], 10, 0, 10), tmp_path)
    assert found is not None
    assert found.certified is None
    assert "No certified bounds" in page(found).settings


class Noisy(nn.Module):
    """A linear classifier whose single answers are often wrong, and whose mean answer is right."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor([[1.0, 0, 0, 0, 0], [-1.0, 0, 0, 0, 0]]))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return points @ self.weight.T + torch.randn(points.shape[0], 2)


def test_a_network_that_draws_is_judged_by_the_mean_over_many_draws(tmp_path: Path) -> None:
    network, points = Single(at_input(Noisy())).eval(), subject().examples.points
    labels = (points[:, 0] < 0).long()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        flips = sum(int((network(points).argmax(1) != labels).sum()) for _ in range(5)) / 300
    assert flips > 0.1, "the plant: single draws are wrong"
    examples = Dataset(points, labels, ("a", "b"), Origin("memory", "digest"))
    random = AuditTarget(network, "noisy", "noisy", examples, "points")
    found = audit(random, config(QUESTION.balls[:2], points=6, seed=1, chunk=6), tmp_path)
    assert found is not None
    with torch.no_grad():
        line = torch.cat([torch.linspace(-1, 1, 2_001)[:, None], torch.zeros(2_001, 4)], 1)
        boundary = float(line[random.eot.network(line).argmax(1) == 0, 0].min())
    assert abs(boundary) < 0.2, "of 64 draws, which have a mean of their own"
    along = points[torch.from_numpy(found.points["row"]), 0]
    known = ((along - boundary) * torch.where(along > 0, 1.0, -1.0)).clamp_min(0)
    assert np.allclose(found.points["margin"], known, atol=2e-3)
    assert found.clean.count == int((known > 0).sum())
    assert [one.count for one in found.robust] == [int((known > ball.radius).sum()) for ball in found.question.balls]
    assert found.summary()["draws"] == {"attack": 8, "verification": 64}
    assert "apgd-ce on 64 draws" in found.attacks
    settings = page(found).settings
    assert "climb the mean over 8 draws" in settings
    assert "by the mean prediction over 64 other draws" in settings


def test_chance_that_cannot_be_fixed_is_said(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def forward(self, points: torch.Tensor) -> torch.Tensor:
            return points[:, :4] + torch.empty_like(points[:, :4]).normal_()

    random = AuditTarget(Single(at_input(Odd())), "odd", "odd", subject().examples, "points")
    found = audit(random, config(QUESTION.balls[:1], points=4, chunk=4), tmp_path)
    assert found is not None
    assert found.draws is None
    assert "every figure is of single ones" in page(found).settings


def test_a_network_that_answers_with_probabilities_is_measured_by_their_logs_and_told_so(
    whole: Audit, tmp_path: Path
) -> None:
    question = replace(QUESTION, diagnoses=named("modes", "probabilities"))
    plain = subject()
    linear = next(one for one in plain.network.modules() if isinstance(one, nn.Linear))
    network = Single(at_input(nn.Sequential(linear, nn.Softmax(-1))))
    found = audit(AuditTarget(network, "shares", "shares", plain.examples, "points"), question, tmp_path)
    assert found is not None
    (finding,) = (one for one in found.findings if one.name == "probabilities")
    assert finding.verdict == "wrong"
    assert "remove the network's softmax" in finding.advice
    assert "Answers are probabilities: attacks climbed their logs." in found.notes
    assert [one.count for one in found.robust] == [one.count for one in whole.robust], "it is the same classifier"
    assert found.certified is None
    assert "probabilities" in page(found).summary


def test_points_outside_the_box_are_told_and_not_attacked(tmp_path: Path) -> None:
    found = audit(subject(), config((Linf(0.1), Linf(0.2)), points=24, seed=3), tmp_path)
    assert found is not None
    (finding,) = (one for one in found.findings if one.verdict == "wrong")
    assert finding.name == "inputs in box"
    assert found.clean.count == int((true_margins(subject())[torch.from_numpy(found.points["row"])] > 0).sum())
    figures = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert figures["robust"] == []
    assert {(point["breaks"], point["by"]) for point in found.per_point()} == {(None, None)}
    assert "Nothing was attacked" in page(found).settings
    assert "inputs in box" in page(found).html()


def test_proofs_that_take_too_long_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_PROOF", 0.0)
    found = audit(subject(), config(QUESTION.balls[:1], 6, 0, 6), tmp_path)
    assert found is not None
    assert found.certified is None
    assert found.notes == ("No certified bounds: one proof takes more than 0 s.",)


def test_whether_points_are_certified_is_decided_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partly(tmp_path, monkeypatch)
    monkeypatch.setattr(module, "LONGEST_PROOF", 0.0)
    again = asked(tmp_path)
    assert again.n == 24
    assert again.certified is not None
    assert again.notes == ()


class NoWayBack(torch.autograd.Function):
    @staticmethod
    def forward(context: object, points: torch.Tensor) -> torch.Tensor:
        return points.clone()

    @staticmethod
    def backward(context: object, *gradients: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no way\nback")


def test_attacks_and_diagnoses_that_fail_are_findings(tmp_path: Path) -> None:

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = next(one for one in subject().network.modules() if isinstance(one, nn.Linear))

        def forward(self, points: torch.Tensor) -> torch.Tensor:
            return self.linear(NoWayBack.apply(points))

    odd = AuditTarget(Single(at_input(Odd())), "odd", "odd", subject().examples, "points")
    found = audit(odd, config(points=6, seed=3, diagnoses=DIAGNOSES), tmp_path)
    assert found is not None
    told = {one.name: one for one in found.findings if "RuntimeError: no way back" in one.evidence}
    assert {"apgd-ce", "apgd-t (3 targets)", "FMN-T", "gradients", "rising", "more steps"} <= set(told)
    assert told["apgd-ce"].evidence.startswith("it failed, so it is left out of robust accuracy: ")
    assert "square" not in told
    assert found.failed == ("apgd-ce", "apgd-t (3 targets)")
    assert "square" in found.led
    assert "under AutoAttack without apgd-ce, apgd-t (3 targets)" in page(found).summary
    assert "apgd-ce" not in found.summary()["robust"][0]["attacks"]
    assert sum(found.broken_by["square"]) > 0, "what needs no gradient breaks some"


def test_a_network_that_fails_for_good_is_one_sentence_and_nothing_done_is_lost(
    whole: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whom, honest, calls = subject(), module._measured, 0

    def broken(*given: object) -> dict[str, np.ndarray]:
        nonlocal calls
        calls += 1
        if calls > 2:
            linear = next(one for one in whom.network.modules() if isinstance(one, nn.Linear))
            linear.weight = nn.Parameter(torch.zeros(4, 7))
        return honest(*given)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_measured", broken)
        with pytest.raises(ValueError, match="the network must answer wherever it is asked, but failed") as told:
            audit(whom, QUESTION, tmp_path)
    assert "\n" not in str(told.value)
    assert len(list(tmp_path.rglob("0*.safetensors"))) == 2
    assert np.array_equal(asked(tmp_path).points["margin"], whole.points["margin"])


@pytest.mark.parametrize("wrong", ["fails", "is refuted"])
def test_certificates_that_do_not_hold_are_a_finding(
    wrong: str, whole: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def proof(network: Network, examples: Examples, ball: Ball, on_progress: object = None) -> torch.Tensor:
        if wrong == "fails":
            raise IndexError("no such layer")
        return torch.full((len(examples),), ball.radius, dtype=torch.float64)

    monkeypatch.setattr(module, "certified_radius", proof)
    found = asked(tmp_path)
    (finding,) = (one for one in found.findings if one.name == "certificates")
    assert ("IndexError: no such layer" if wrong == "fails" else "does not hold") in finding.evidence
    assert found.certified is None
    assert [one.count for one in found.robust] == [one.count for one in whole.robust]


def test_a_surrogate_that_fails_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise IndexError("too few points")

    monkeypatch.setattr(module, "surrogate", failing)
    found = asked(tmp_path)
    (finding,) = (one for one in found.findings if one.name == "transfer")
    assert "IndexError: too few points" in finding.evidence
    assert module.TRANSFER not in found.attacks


def test_a_chunk_holds_the_rows_it_must(whole: Audit, tmp_path: Path) -> None:
    """One of another question, one by another name, and one flipped bit."""
    asked(tmp_path)
    place = tmp_path / subject().key(QUESTION)
    chunk = sorted(place.glob("0*.safetensors"))[0]
    good = chunk.read_bytes()
    other = place.with_name("other")
    shutil.copytree(place, other)
    with pytest.raises(ValueError, match="holds points of another audit: delete it, and the same command"):
        check_saved(other, QUESTION, 60)
    for damage, word in (
        (lambda: chunk.rename(place / "000999.safetensors"), "another audit"),
        (lambda: chunk.write_bytes(good[:-3] + bytes([good[-3] ^ 4]) + good[-2:]), "its checksum differs"),
    ):
        damage()
        with pytest.raises(ValueError, match=f"{word}.*: delete it, and the same command measures"):
            asked(tmp_path)
        (place / "000999.safetensors").unlink(missing_ok=True)
        chunk.unlink(missing_ok=True)
        again = asked(tmp_path)
        assert again.n == 24
        assert np.array_equal(again.points["margin"], whole.points["margin"])


def test_the_page_shows_proofs_as_far_as_they_were_looked_for(whole: Audit) -> None:
    easy = replace(whole, points={**whole.points, "certified": np.full(24, QUESTION.balls[-1].radius)})
    figure = next(picture.figure for picture in page(easy).pictures if picture.name == "robustness")
    (proven,) = (line for line in figure.axes[0].lines if line.get_label() == "proven")
    assert set(proven.get_ydata()) == {100.0}
    without = replace(whole, points={**whole.points, "certified": np.full(24, np.nan)})
    columns = [table.columns for table in page(without).tables if table.title == "Accuracy under AutoAttack"]
    assert columns == [("points moved within", "accuracy", "95 % interval")]
    assert len(next(table for table in page(easy).tables if table.title == "Accuracy under AutoAttack").columns) == 4


def test_a_class_may_be_called_anything(whole: Audit) -> None:
    image, zero = np.zeros((1, 1, 4, 4)), np.zeros(1, dtype=int)
    shown = Shown(image, image, zero, zero, np.ones(1))
    text = page(replace(whole, classes=(r"$\foo{$<b>", "b", "c", "d"), shown=shown)).html()
    assert "<b>" not in text


@pytest.mark.parametrize("wrong", [{"balls": ()}, {"points": 0}, {"chunk": 0}, {"seed": 2**70}])
def test_a_question_must_ask_something(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"an audit needs at least 1|the seed must be .* got 1180591620717411303424"):
        AuditConfig(**{"balls": QUESTION.balls, **wrong})  # type: ignore[arg-type]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_suites_and_diagnoses_are_part_of_what_is_measured_and_the_usual_ones_go_without_saying() -> None:
    usual, weak = AuditConfig(BALLS[:1]), config(BALLS[:1], standard=Weak())
    assert repr(usual) == "AuditConfig(balls=(L2(radius=0.2, box=OPEN),), points=1000, seed=0, chunk=100)"
    assert repr(weak).endswith("chunk=100, standard=Weak(), shortest=OnlyFMN(), diagnoses=('modes',))")
    assert len({subject().key(one) for one in (usual, weak, config(BALLS[:1]), config(BALLS[:1], diagnoses=()))}) == 4


def test_without_diagnoses_and_square_nothing_is_said_of_them(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Alone:
        def __call__(self, ball: Ball, classes: int, rows_at_once: int = 0) -> tuple[Attack, ...]:
            return (APGD(ball, steps=20),)

    found = audit(subject(), config(points=6, seed=3, standard=Alone(), diagnoses=()), tmp_path)
    assert found is not None
    assert {one.name for one in found.findings} == {"transfer"}
    assert found.attacks[0] == "apgd-ce"
