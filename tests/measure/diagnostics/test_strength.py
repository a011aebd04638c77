import pytest
import torch

from diagnosed import BALL, EFFORT, FLAT, linear, mlp, planted, single, stairs, verdicts
from widemargin import L2, OPEN, Linf
from widemargin.measure import diagnostics as d
from widemargin.perturb.balls import Ball
from widemargin.perturb.pgd import PGD


def test_rising() -> None:
    assert d.rising([(0.2, 0.4, 1000), (0.1, 0.5, 1000)]).verdict == "fine"
    assert d.rising([(0.1, 0.5, 1000), (0.2, 0.501, 1000)]).verdict == "suspicious"
    finding = d.rising([(0.1, 0.5, 1000), (0.2, 0.45, 1000), (0.3, 0.52, 1000)])
    assert finding.verdict == "wrong"
    assert finding.numbers["rise"] == pytest.approx(0.07)
    assert d.rising([(0.1, 0.5, 1000), (0.2, 0.52, 900)]).verdict == "fine"
    assert d.rising([(0.1, 0.5, 1000), (0.2, 0.6, 900)]).verdict == "wrong"
    with pytest.raises(ValueError, match="at least two radii, got 1"):
        d.rising([(0.1, 0.5, 10)])
    assert "rising" not in verdicts(d.all_findings(d.Examined(single(mlp()), FLAT, BALL, (0.1,), effort=EFFORT)))


@pytest.mark.parametrize("ball", [BALL, L2(0.3, OPEN)], ids=repr)
def test_large_radius(ball: Ball) -> None:
    finding = d.large_radius(planted(before=stairs), FLAT, ball, steps=EFFORT.many_steps)
    assert finding.verdict == "wrong"
    assert finding.numbers["share"] > 0.9
    constant = planted(after=lambda z: 0 * z + torch.tensor([1.0, 0.0, 0.0]))
    assert d.large_radius(constant, FLAT, ball, steps=EFFORT.many_steps).verdict == "suspicious"


def test_black_box() -> None:
    broken = torch.arange(1000) < 400
    assert d.black_box({"apgd": broken}, {"square": torch.arange(1000) < 402}).verdict == "fine"
    assert d.black_box({"apgd": broken}, {"square": torch.arange(1000) < 403}).verdict == "suspicious"
    finding = d.black_box({"apgd": ~broken, "fab": broken & False}, {"square": broken})
    assert finding.verdict == "wrong"
    assert finding.numbers == {"gain": 0.4, "square": 0.4}
    assert d.black_box({"apgd": broken[:20] & False}, {"square": torch.arange(20) < 1}).verdict == "suspicious"
    with pytest.raises(ValueError, match="at least one attack of each kind"):
        d.black_box({}, {"square": broken})


def test_transfer() -> None:
    masked = planted(before=stairs)
    white = d.broken_by(masked, FLAT, PGD(Linf(0.2), 10))
    finding = d.transfer(masked, FLAT, Linf(0.2), [single(linear()), single(mlp())], white, EFFORT.many_steps)
    assert finding.verdict == "wrong"
    assert finding.numbers["surrogate 1"] > 0.2
    with pytest.raises(ValueError, match="at least one surrogate"):
        d.transfer(masked, FLAT, BALL, [], white)


def test_random_noise() -> None:
    masked, ball = planted(before=stairs), Linf(0.25)
    white = d.broken_by(masked, FLAT, PGD(ball, 10))
    finding = d.random_noise(masked, FLAT, ball, white, draws=EFFORT.draws)
    assert finding.verdict == "wrong"
    assert finding.numbers["share_noise_only"] > 0.01 > finding.numbers["share_few_steps"]


def test_more_steps() -> None:
    few = torch.arange(1000) < 400
    assert d.more_steps(few, torch.arange(1000) < 405).verdict == "fine"
    assert d.more_steps(few, torch.arange(1000) < 406).verdict == "suspicious"
    assert d.more_steps(few, torch.arange(1000) < 500).verdict == "wrong"
    assert [d.more_steps(few[385:415], torch.arange(30) < n).verdict for n in (16, 17)] == ["fine", "wrong"]
