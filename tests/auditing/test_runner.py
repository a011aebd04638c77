"""An audit counts right, survives interruption, and repeats nothing."""

import json
import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from small_audits import BALLS, QUESTION, asked, config, subject
from widemargin.auditing import runner as module
from widemargin.auditing.chunks import FIRST, Chunk, pieces
from widemargin.auditing.clock import Clock
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.result import Audit
from widemargin.auditing.runner import audit
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Dataset, Origin
from widemargin.measure.diagnostics import DIAGNOSES
from widemargin.perturb.balls import Linf
from widemargin.report.audit_page import page
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single

pytestmark = pytest.mark.usefixtures("quick_surrogate", "one_thread")


def true_margins(whom: AuditTarget) -> torch.Tensor:
    linear = next(m for m in whom.network.modules() if isinstance(m, nn.Linear))
    labels = whom.examples.labels
    weight, logits = linear.weight.detach().double(), linear(whom.examples.points).detach().double()
    ways = (logits.gather(1, labels[:, None]) - logits) / (weight[labels][:, None] - weight[None]).norm(dim=-1)
    return ways.masked_fill(torch.arange(logits.shape[1]) == labels[:, None], math.inf).amin(1).clamp_min(0)


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


def test_another_question_or_other_weights_begin_anew(tmp_path: Path) -> None:
    keys = {subject().key(QUESTION), subject().key(config(QUESTION.balls, 24, 4, 6))}
    other = AuditTarget(subject().network, "linear", "others", subject().examples, "points")
    assert len(keys | {other.key(QUESTION)}) == 3


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
