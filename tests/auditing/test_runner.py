"""An audit counts right, survives interruption, and repeats nothing."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from small_audits import BALLS, CONFIG, audited, config, target
from widemargin.auditing.chunks import FIRST
from widemargin.auditing.clock import Clock
from widemargin.auditing.result import Audit
from widemargin.auditing.runner import audit
from widemargin.auditing.target import AuditTarget
from widemargin.auditing.transfer import TRANSFER
from widemargin.data.dataset import Dataset, Origin
from widemargin.files import read_json, write_json
from widemargin.measure.diagnostics import DIAGNOSES
from widemargin.perturb.balls import Linf
from widemargin.report.audit_page import page
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single

pytestmark = pytest.mark.usefixtures("one_thread")


def true_margins(whom: AuditTarget) -> torch.Tensor:
    linear = next(m for m in whom.network.modules() if isinstance(m, nn.Linear))
    labels = whom.examples.labels
    weight, logits = linear.weight.detach().double(), linear(whom.examples.points).detach().double()
    ways = (logits.gather(1, labels[:, None]) - logits) / (weight[labels][:, None] - weight[None]).norm(dim=-1)
    return ways.masked_fill(torch.arange(logits.shape[1]) == labels[:, None], math.inf).amin(1).clamp_min(0)


def test_a_linear_model_gets_its_known_margins(whole: Audit) -> None:
    found, truth = whole, true_margins(target())
    rows = found.points["row"]
    assert len(set(rows)) == found.n == found.asked == 24
    known = truth[torch.from_numpy(rows)].numpy()
    assert np.allclose(found.points["margin"], known, rtol=0.01, atol=1e-6)
    assert np.all(found.points["certified"] <= found.points["margin"] * (1 + 1e-4))
    assert found.clean.count == int((known > 0).sum()) < 24
    for ball, robust, proven in zip(CONFIG.balls, found.robust, found.certified or (), strict=True):
        # Nobody stands at exactly a radius here.
        assert robust.count == int((known > ball.radius).sum())
        assert proven.count <= robust.count
    broken = sum(map(sum, found.broken_by.values()))
    assert broken == int(((known > 0) & (known <= 1.0)).sum())


def test_what_was_interrupted_goes_on_without_repeating_or_losing_a_point(whole: Audit, tmp_path: Path) -> None:
    def interrupt(done: int, of: int) -> None:
        if done == 13:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audited(tmp_path, on_progress=interrupt)
    saved = {path: path.stat() for path in tmp_path.rglob("0*.safetensors")}
    assert len(saved) == 2, "the third chunk was cut"
    done: list[int] = []
    again = audited(tmp_path, on_progress=lambda points, of: done.append(points))
    assert min(done) >= 12, "the two chunks are not measured again"
    assert all(path.stat().st_ino == before.st_ino for path, before in saved.items())
    assert len(list(tmp_path.rglob("0*.safetensors"))) == 4
    for name, values in whole.points.items():
        assert np.array_equal(values, again.points[name], equal_nan=True), name
    summaries = [{**one.summary(), "seconds": 0} for one in (whole, again)]
    assert summaries[0] == summaries[1]


def partly(folder: Path) -> Audit:
    """Ended by a budget after the first few points."""
    now = 0.0

    def all_is_spent_on_the_first(done: int, of: int) -> None:
        nonlocal now
        now = 2e6 if done == FIRST else now

    return audited(folder, Clock(1e6, 0.0, lambda: now), all_is_spent_on_the_first)


def test_a_budget_ends_it_and_says_so(tmp_path: Path) -> None:
    found = partly(tmp_path)
    assert (found.n, found.asked) == (FIRST, 24)
    assert f"the {FIRST} of 24 for which there was time" in page(found).summary
    assert "No transfer from a surrogate: the time was up." in page(found).settings
    assert TRANSFER not in found.attacks


def test_a_budget_for_not_even_one_point_says_what_it_should_be(tmp_path: Path) -> None:
    found = audited(tmp_path, Clock(0.0))
    assert not list(tmp_path.rglob("0*.safetensors"))
    first, *_ = page(found).summary.split(": ")
    assert first.startswith("A budget of 0s is too short to attack a single point of this network, which may take ")
    assert found.too_short.endswith("s.")
    assert found.attacks == ()
    assert found.summary()["robust"] == []
    assert {"modes"} == {one.name for one in found.findings}
    assert audited(tmp_path).n == 24, "and without a budget it goes on"


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
def test_a_budget_is_kept_within_a_quarter(budget: float, tmp_path: Path) -> None:
    slow = Slow()
    whom = AuditTarget(Single(at_input(slow)), "slow", "slow", target().examples, "points")
    every = config(BALLS, 24, 3, diagnoses=DIAGNOSES)
    calls = [audit(whom, every, tmp_path, Clock(budget, slow.now, lambda: slow.now)) for _ in range(2)]
    assert all(one is not None for one in calls)
    assert slow.now <= 2 * 1.25 * budget
    last = calls[1]
    assert last is not None
    assert (last.n > 1 and not last.too_short) or "give one of at least" in page(last).summary.split(". ")[0]
    assert 0.9 * slow.now <= last.seconds <= slow.now, "the time that passed, of both"


def test_one_can_see_that_it_goes_on(whole: Audit, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    large_chunks = config(CONFIG.balls, points=24, seed=3, chunk=12)
    found = audit(target(), large_chunks, tmp_path, on_progress=lambda done, of: told.append((done, of)))
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
    assert audit(target(), CONFIG, tmp_path, processes=_Share(1)) is None  # type: ignore[arg-type]
    files = sorted(path.name for path in tmp_path.rglob("*.safetensors"))
    chunks = CONFIG.chunks(60)
    assert files == sorted(f"{int(chunks[number][0]):06}.safetensors" for number in (1, 3))
    shared = audit(target(), CONFIG, tmp_path, processes=_Share(0))  # type: ignore[arg-type]
    assert shared is not None
    assert np.array_equal(shared.points["margin"], whole.points["margin"])


def test_another_configuration_or_other_weights_begin_anew(tmp_path: Path) -> None:
    keys = {target().key(CONFIG), target().key(config(CONFIG.balls, 24, 4, 6))}
    other = AuditTarget(target().network, "linear", "others", target().examples, "points")
    assert len(keys | {other.key(CONFIG)}) == 3


def test_without_a_certificate_it_says_why(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x.sin()) if bool(x.sum() > 0) else self.linear(x.cos())

    plain = target()
    odd = AuditTarget(Single(at_input(Odd())), "odd", "odd", plain.examples, "points")
    found = audit(odd, config(CONFIG.balls[:1], 10, 0, 10), tmp_path)
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
    network, points = Single(at_input(Noisy())).eval(), target().examples.points
    labels = (points[:, 0] < 0).long()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        flips = sum(int((network(points).argmax(1) != labels).sum()) for _ in range(5)) / 300
    assert flips > 0.1, "the plant: single draws are wrong"
    examples = Dataset(points, labels, ("a", "b"), Origin("memory", "digest"))
    random = AuditTarget(network, "noisy", "noisy", examples, "points")
    found = audit(random, config(CONFIG.balls[:2], points=6, seed=1, chunk=6), tmp_path)
    assert found is not None
    with torch.no_grad():
        line = torch.cat([torch.linspace(-1, 1, 2_001)[:, None], torch.zeros(2_001, 4)], 1)
        boundary = float(line[random.eot.network(line).argmax(1) == 0, 0].min())
    assert abs(boundary) < 0.2, "of 64 draws, which have a mean of their own"
    along = points[torch.from_numpy(found.points["row"]), 0]
    known = ((along - boundary) * torch.where(along > 0, 1.0, -1.0)).clamp_min(0)
    assert np.allclose(found.points["margin"], known, atol=2e-3)
    assert found.clean.count == int((known > 0).sum())
    assert [one.count for one in found.robust] == [int((known > ball.radius).sum()) for ball in found.config.balls]
    assert found.summary()["draws"] == {"attack": 8, "verification": 64}
    assert "apgd-ce on 64 draws" in found.attacks
    settings = page(found).settings
    assert "use the mean over 8 draws" in settings
    assert "by the mean prediction over 64 other draws" in settings


def test_points_outside_the_box_are_told_and_not_attacked(tmp_path: Path) -> None:
    found = audit(target(), config((Linf(0.1), Linf(0.2)), points=24, seed=3), tmp_path)
    assert found is not None
    (finding,) = (one for one in found.findings if one.verdict == "wrong")
    assert finding.name == "inputs in box"
    assert found.clean.count == int((true_margins(target())[torch.from_numpy(found.points["row"])] > 0).sum())
    figures = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert figures["robust"] == []
    assert {(point["breaks"], point["by"]) for point in found.per_point()} == {(None, None)}
    assert "Nothing was attacked" in page(found).settings
    assert "inputs in box" in page(found).html()


def test_whether_points_are_certified_is_decided_once(tmp_path: Path) -> None:
    assert partly(tmp_path).certified is not None
    (decided,) = tmp_path.rglob("uncertified.json")
    assert read_json(decided) == {"reasons": [], "failed": {}}
    write_json(decided, {"reasons": ["No certified bounds: it was decided so."], "failed": {}})
    again = audited(tmp_path)
    assert again.n == 24
    assert again.certified is None
    assert again.notes == ("No certified bounds: it was decided so.",)


def test_a_network_that_fails_for_good_is_one_sentence_and_nothing_done_is_lost(whole: Audit, tmp_path: Path) -> None:
    whom = target()

    def break_it(done: int, of: int) -> None:
        if done == 12:
            linear = next(one for one in whom.network.modules() if isinstance(one, nn.Linear))
            linear.weight = nn.Parameter(torch.zeros(4, 7))

    with pytest.raises(ValueError, match="the network must answer wherever it is asked, but failed") as told:
        audit(whom, CONFIG, tmp_path, on_progress=break_it)
    assert "\n" not in str(told.value)
    assert len(list(tmp_path.rglob("0*.safetensors"))) == 2
    assert np.array_equal(audited(tmp_path).points["margin"], whole.points["margin"])
