import copy

import torch
from torch import nn

from diagnosed import BALL, EFFORT, FLAT, IMAGES, Then, conv, linear, mlp, planted, single, verdicts
from widemargin import OPEN, Box, Dataset, Ensemble, Linf, Single, at_input
from widemargin.measure import diagnostics as d


def test_probabilities() -> None:
    finding = d.probabilities(planted(after=lambda z: z.softmax(-1)), FLAT)
    assert (finding.verdict, finding.numbers["share"]) == ("wrong", 1.0)
    one_of_two = Ensemble([Then(mlp(), after=lambda z: z.softmax(-1)), linear()])
    assert d.probabilities(one_of_two, FLAT).verdict == "wrong"
    assert "log-probabilities" in d.probabilities(planted(after=lambda z: z.log_softmax(-1)), FLAT).evidence


def test_randomness() -> None:
    much = d.randomness(planted(before=lambda x: x + 0.3 * torch.randn_like(x)), FLAT)
    assert much.verdict == "wrong"
    assert much.numbers["share"] == 1
    assert much.numbers["share_class_changes"] > 0
    assert d.randomness(planted(after=lambda z: z + 1e-3 * torch.randn_like(z)), FLAT).verdict == "suspicious"


def test_modes() -> None:
    network = single(copy.deepcopy(conv()))
    assert d.modes(network, IMAGES).verdict == "fine"
    head = network.get_submodule("head.4")
    head.train()
    finding = d.modes(network, IMAGES)
    assert finding.verdict == "wrong"
    assert "head.4" in finding.evidence
    assert "head.1" not in finding.evidence
    network.train()
    assert "head.1, head.4" in d.modes(network, IMAGES).evidence
    one = Dataset(IMAGES.points[:1], IMAGES.labels[:1])
    assert d.modes(network, one).verdict == "suspicious"
    assert d.modes(single(nn.BatchNorm1d(12, track_running_stats=False)), FLAT).verdict == "wrong"
    assert d.modes(Single(at_input(copy.deepcopy(mlp()))).train(), FLAT).verdict == "fine"


def test_inputs_in_box() -> None:
    pixels = Dataset(255 * FLAT.points, FLAT.labels)
    finding = d.inputs_in_box(pixels, BALL)
    assert (finding.verdict, finding.numbers["share_outside"]) == ("wrong", 1.0)
    assert finding.numbers["highest"] > 100
    assert d.inputs_in_box(FLAT, Linf(8.0, Box(0.0, 255.0))).verdict == "suspicious"
    assert d.inputs_in_box(FLAT, Linf(8.0, Box((0.0,) * 12, (255.0,) * 12))).verdict == "suspicious"
    assert d.inputs_in_box(pixels, Linf(8.0, Box(0.0, 255.0))).verdict == "fine"
    assert d.inputs_in_box(pixels, Linf(8.0, OPEN)).verdict == "fine"
    assert d.inputs_in_box(pixels, Linf(8.0, Box(0.0, float("inf")))).verdict == "fine"
    names = verdicts(d.all_findings(d.Examined(planted(before=lambda x: x / 255), pixels, BALL, effort=EFFORT)))
    assert names["inputs in box"] == "wrong"
    assert "large radius" not in names
