import torch

from diagnosed import BALL, FLAT, Then, linear, mlp, planted, stairs
from widemargin import Ensemble
from widemargin.measure import diagnostics as d


def test_saturated_softmax_is_told_from_flat_networks() -> None:
    saturated = d.gradients(planted(after=lambda z: 1e4 * z), FLAT)
    assert saturated.verdict == "wrong"
    assert saturated.numbers["share_zero_cross_entropy"] > 0.5
    assert saturated.numbers["share_saturated"] > 0.5
    assert saturated.numbers["share_zero_margin"] == 0
    assert "cross-entropy is saturated" in saturated.advice
    for flat in (
        planted(before=stairs),
        planted(after=torch.sign),
        planted(after=torch.round),
        planted(after=lambda z: z.detach()),
    ):
        finding = d.gradients(flat, FLAT)
        assert (finding.verdict, finding.numbers["share_zero_margin"]) == ("wrong", 1.0)
        assert "hides" in finding.advice
    nearly = d.gradients(planted(after=lambda z: z.round() + 1e-4 * z), FLAT)
    assert nearly.numbers["share_zero_margin"] == 0
    assert nearly.verdict == "wrong"
    member = d.gradients(Ensemble([Then(mlp(), stairs), linear()]), FLAT)
    assert (member.verdict, member.numbers["share_zero_member"]) == ("wrong", 1.0)


def test_loss_surface() -> None:
    saturated = d.loss_surface(planted(after=lambda z: 1e4 * z), FLAT, BALL)
    assert saturated.verdict == "suspicious"
    assert saturated.numbers["share"] > 0.5 > saturated.numbers["share_margin"]
    flat = d.loss_surface(planted(before=stairs), FLAT, BALL)
    assert (flat.verdict, flat.numbers["share_margin"]) == ("wrong", 1.0)
