import math
import sys
from typing import final

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widemargin.data.dataset import Dataset
from widemargin.measure.accuracy import accuracy
from widemargin.measure.calibration import (
    UNCERTAINTIES,
    calibration,
    misclassification_detection,
    ood_detection,
    reliability,
    uncertainty,
    uncertainty_report,
)
from widemargin.networks.mlp import MLP
from widemargin.perturb.objectives import CLIMBED
from widemargin.shapes import Encoded, MemberLogits, Points
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.dropout import MCDropout
from widemargin.uncertainty.ensemble import Ensemble
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.predictive import entropy, log_mean_prob
from widemargin.uncertainty.replicas import Replicas
from widemargin.uncertainty.single import Single


@final
class Table(Network):
    """Answers what it was told: a point is the number of its row."""

    replicas = 1

    def __init__(self, logits: MemberLogits) -> None:
        super().__init__()
        self.answers = nn.Parameter(logits)

    def encode(self, inputs: Points) -> Encoded:
        return inputs

    def logits(self, encoded: Encoded) -> MemberLogits:
        return self.answers[:, encoded[:, 0].long()]

    def penalty(self) -> Tensor:
        return self.answers.new_zeros(())


def answering(probs: list[list[float]]) -> Table:
    return Table(torch.tensor([probs], dtype=torch.float64).log())


def rows(labels: list[int], start: int = 0) -> Dataset:
    return Dataset(torch.arange(start, start + len(labels), dtype=torch.float32)[:, None], torch.tensor(labels))


def random_case(members: int = 1, scale: float = 3.0) -> tuple[Table, Dataset]:
    rng = torch.Generator().manual_seed(0)
    network = Table(scale * torch.randn(members, 120, 4, generator=rng, dtype=torch.float64))
    return network, rows(torch.randint(0, 4, (120,), generator=rng).tolist())


def test_expected_calibration_error_by_hand() -> None:
    # Two answers of .9, one of them right; two of .6, both right: (2 |.5 - .9| + 2 |1 - .6|) / 4.
    found = reliability(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, False, True, True]), bins=5)
    assert found.count.tolist() == [0, 0, 2, 0, 2]
    assert found.ece == pytest.approx(0.4)
    assert found.mce == pytest.approx(0.4)
    assert found.accuracy[[2, 4]].tolist() == [1.0, 0.5]
    assert np.isnan(found.confidence[[0, 1, 3]]).all()
    assert found.n == 4


def test_opposite_errors_in_one_bin_cancel_and_in_two_do_not() -> None:
    sure, right = np.array([0.7, 0.95]), np.array([True, False])
    assert reliability(sure, right, bins=1).ece == pytest.approx(abs(0.5 - 0.825))
    assert reliability(sure, right, bins=10).ece == pytest.approx((0.3 + 0.95) / 2)


def test_an_edge_belongs_to_the_bin_below_and_0_and_1_to_the_outermost() -> None:
    found = reliability(np.array([0.0, 0.5, 0.5 + 1e-9, 1.0, 1.0 + 1e-9]), np.ones(5, dtype=bool), bins=2)
    assert found.count.tolist() == [2, 3]
    assert found.edges.tolist() == [0.0, 0.5, 1.0]


def test_a_network_as_right_as_it_is_sure_is_calibrated() -> None:
    network = answering([[0.8, 0.2]] * 5)
    found = calibration(network, rows([0, 0, 0, 0, 1]))
    assert found.ece == pytest.approx(0, abs=1e-12)
    assert (found.n, found.members, found.accuracy) == (5, 1, 0.8)
    assert found.nll == pytest.approx(-0.8 * math.log(0.8) - 0.2 * math.log(0.2))
    assert found.brier == pytest.approx(0.8 * 2 * 0.2**2 + 0.2 * 2 * 0.8**2)
    assert len(found.bins.count) == 15


@pytest.mark.parametrize("members", [1, 3])
def test_likelihood_and_brier_score_are_scikit_learns(members: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    network, examples = random_case(members)
    probs = log_mean_prob(network.answers.detach()).exp().numpy()
    found = calibration(network, examples)
    assert found.members == members
    assert found.accuracy == accuracy(network, examples)
    assert found.nll == pytest.approx(metrics.log_loss(examples.labels, probs))
    truth = np.eye(4)[examples.labels.numpy()]
    assert found.brier == pytest.approx(4 * metrics.mean_squared_error(truth, probs))


def test_the_bins_are_scikit_learns() -> None:
    curve = pytest.importorskip("sklearn.calibration").calibration_curve
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.2, 1, 1000)
    right = rng.uniform(size=1000) < confidence**2
    found = reliability(confidence, right, 15)
    filled = found.count > 0
    accuracies, confidences = curve(right, confidence, n_bins=15, strategy="uniform")
    np.testing.assert_allclose(found.accuracy[filled], accuracies)
    np.testing.assert_allclose(found.confidence[filled], confidences)
    share = found.count[filled] / 1000
    assert found.ece == pytest.approx(float((np.abs(accuracies - confidences) * share).sum()))


def test_a_network_that_is_surely_wrong_pays_for_all_of_it() -> None:
    # scikit-learn would stop at 36.
    network = Table(torch.tensor([[[200.0, 0.0]]]))
    assert calibration(network, rows([1])).nll == pytest.approx(200.0)


def test_wrong_answers_are_told_from_right_ones_by_hand() -> None:
    pytest.importorskip("sklearn")
    # Wrong ones are the second and the last; of the four pairs (wrong, right) three are in order.
    network = answering([[0.99, 0.01], [0.55, 0.45], [0.7, 0.3], [0.9, 0.1]])
    found = misclassification_detection(network, rows([0, 1, 0, 1]))
    assert (found.auroc, found.positives, found.negatives, found.n, found.members) == (0.75, 2, 2, 4, 1)
    with pytest.raises(ValueError, match="right and wrong answers to tell apart, got 0 wrong of 4"):
        misclassification_detection(network, rows([0, 0, 0, 0]))


def test_outside_is_told_from_inside_whatever_the_measure_if_it_is_more_uncertain_by_all() -> None:
    pytest.importorskip("sklearn")
    sure, split = [[4.0, 0.0, 0.0]] * 3, [[0.1, 0.0, 0.0], [0.0, 0.2, 0.0], [0.3, 0.0, 0.0]]
    other = [[4.1, 0.0, 0.0]] * 3, [[0.0, 3.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 2.0]]
    network = Table(torch.tensor([sure + split, other[0] + other[1]]))
    inside, outside = rows([0, 0, 0]), rows([0, 0, 0], start=3)
    for measure in UNCERTAINTIES.values():
        found = ood_detection(network, inside, outside, measure)
        assert (found.auroc, found.positives, found.negatives, found.members) == (1.0, 3, 3, 2)
        assert ood_detection(network, outside, inside, measure).auroc == 0.0


def test_one_member_has_no_mutual_information() -> None:
    network, examples = random_case()
    with pytest.raises(ValueError, match="at least 2 members"):
        uncertainty(network, examples, UNCERTAINTIES["mutual information"])


def test_uncertainties_rank_like_what_they_are_the_logs_of() -> None:
    network, examples = random_case(members=3, scale=1.0)
    answers = log_mean_prob(network.answers.detach())
    by_entropy = uncertainty(network, examples, UNCERTAINTIES["entropy"], batch_size=7)
    assert torch.equal(by_entropy.argsort(), entropy(answers).argsort())
    by_ratio = uncertainty(network, examples, UNCERTAINTIES["variation ratio"])
    assert torch.equal(by_ratio.argsort(), (-answers.max(-1).values).argsort())


@pytest.mark.parametrize(
    "network",
    [
        Single(at_input(MLP(2, 8, 3))),
        Ensemble([MLP(2, 8, 3), MLP(2, 8, 3)]),
        MCDropout(at_input(MLP(2, 8, 3, dropout=0.5)), draws=4),
    ],
    ids=lambda network: type(network).__name__,
)
def test_any_network_is_measured_and_left_as_it_was(network: Network) -> None:
    examples = Dataset(torch.randn(40, 2, generator=torch.Generator().manual_seed(1)), torch.arange(40) % 3)
    network.train()
    found = calibration(network, examples)
    assert found.members == len(network.eval().logits(network.encode(examples.points)))
    network.train()
    assert calibration(network, examples).brier == found.brier
    assert network.training
    assert all(parameter.grad is None for parameter in network.parameters())
    assert found.bins.n == found.n == 40


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(ValueError, match="one network, got 2 replicas"):
        calibration(Replicas([MLP(2, 4, 2), MLP(2, 4, 2)]), rows([0, 1]))
    with pytest.raises(ValueError, match="finite logits"):
        calibration(Table(torch.full((1, 2, 2), torch.nan)), rows([0, 1]))
    with pytest.raises(ValueError, match="bins must be"):
        reliability(np.array([0.5]), np.array([True]), bins=0)
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        reliability(np.array([1.5]), np.array([True]))
    with pytest.raises(ValueError, match="one confidence for each answer"):
        reliability(np.array([0.5]), np.array([True, False]))


def test_without_scikit_learn_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.metrics", None)
    network, examples = random_case()
    assert calibration(network, examples).n == 120
    with pytest.raises(ValueError, match=r"pip install 'widemargin\[sklearn\]'"):
        misclassification_detection(network, examples)


def test_doubts_are_all_measures_at_once() -> None:
    network, cloud = random_case(members=3)
    inside, outside = Dataset(cloud.points[:60], cloud.labels[:60]), Dataset(cloud.points[60:], cloud.labels[60:])
    found = uncertainty_report(network, inside, {"elsewhere": outside})
    assert found.calibration.brier == calibration(network, inside).brier
    assert list(found.by) == list(UNCERTAINTIES)
    for name, measure in UNCERTAINTIES.items():
        own = found.by[name]
        assert own.misclassification_detection == misclassification_detection(network, inside, measure)
        assert own.ood_detection == {"elsewhere": ood_detection(network, inside, outside, measure)}
        assert len(own.correct) == round(60 * found.calibration.accuracy)
        assert len(own.correct) + len(own.misclassified) == 60
        np.testing.assert_array_equal(own.ood["elsewhere"], uncertainty(network, outside, measure))


def test_doubts_of_one_member_leave_out_what_it_has_not_and_need_no_mistakes() -> None:
    found = uncertainty_report(answering([[0.9, 0.1], [0.2, 0.8]]), rows([0, 1]), {})
    assert list(found.by) == ["entropy", "variation ratio", "gap"]
    assert found.by["entropy"].misclassification_detection is None
    assert found.by["entropy"].ood_detection == {}


def test_every_measure_can_be_climbed() -> None:
    assert list(CLIMBED) == list(UNCERTAINTIES)
