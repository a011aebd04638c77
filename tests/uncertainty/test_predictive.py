import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import exact
from widemargin import Ensemble
from widemargin.networks.mlp import MLP
from widemargin.uncertainty import predictive

DTYPES = [torch.float32, torch.float64]
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
shapes = pytest.mark.parametrize("classes", [2, 3, 10])
members = pytest.mark.parametrize("count", [1, 3])
# What log-probabilities of 1e4 leave of each dtype's digits.
PRECISION = {torch.float32: 1e-2, torch.float64: 1e-7}


def random_logits(count: int, classes: int) -> st.SearchStrategy[list[list[float]]]:
    """Gaps from almost none to 1e4, exactly representable in both dtypes."""
    whole = st.integers(-1000, 1000)
    rows = st.lists(st.lists(whole, min_size=classes, max_size=classes), min_size=count, max_size=count)
    scales = st.sampled_from([2.0**-12, 2.0**-8, 2.0**-6, 2.0**-3, 1.0, 8.0])
    return st.tuples(rows, scales).map(lambda drawn: [[x * drawn[1] for x in row] for row in drawn[0]])


def one_sample(logits: list[list[float]], dtype: torch.dtype) -> Tensor:
    return torch.tensor(logits, dtype=dtype).unsqueeze(1).requires_grad_()


def gradient(value: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    return torch.autograd.grad(value(logits).sum(), logits)[0]


@every_dtype
@members
@shapes
@settings(max_examples=15)
@given(data=st.data())
def test_log_entropy_and_its_gradient_are_exact(
    dtype: torch.dtype, count: int, classes: int, data: st.DataObject
) -> None:
    drawn = data.draw(random_logits(count, classes))
    logits = one_sample(drawn, dtype)
    value = float(exact.mp.log(exact.entropy(drawn)))
    close = 1e-5 if dtype == torch.float32 else 1e-9
    assert predictive.log_entropy(logits).item() == pytest.approx(value, rel=close, abs=close)

    slope = gradient(predictive.log_entropy, logits)[:, 0].double()
    true_slope = torch.tensor([[float(x) for x in row] for row in exact.gradient_of_log(exact.entropy, drawn)])
    true_slope = true_slope.double()
    largest = true_slope.abs().max()
    assert slope.isfinite().all()
    tolerance = PRECISION[dtype] * float(largest) + 1e-30
    if largest > 1e-6:
        torch.testing.assert_close(slope, true_slope, rtol=PRECISION[dtype], atol=tolerance)
        tells = true_slope.abs() > 2 * tolerance
        assert (slope.sign() == true_slope.sign())[tells].all()


@every_dtype
@pytest.mark.parametrize("gap", [1.0, 20.0, 100.0, 1e3, 1e4])
def test_confident_points_keep_a_gradient(dtype: torch.dtype, gap: float) -> None:
    logits = one_sample([[gap, 0.0]], dtype)
    slope = gradient(predictive.log_entropy, logits)
    assert slope[0, 0, 0] < -0.1
    assert slope[0, 0, 1] > 0.1


@members
@shapes
@given(data=st.data())
def test_log_entropy_agrees_with_its_autograd_twin(count: int, classes: int, data: st.DataObject) -> None:
    def twin(logits: Tensor) -> Tensor:
        return predictive.log_entropy_by_autograd(predictive.log_mean_prob(logits))

    logits = one_sample(data.draw(random_logits(count, classes)), torch.float64)
    torch.testing.assert_close(predictive.log_entropy(logits), twin(logits), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradient(predictive.log_entropy, logits), gradient(twin, logits), rtol=0, atol=1e-7)


VALUES = [
    (lambda x: predictive.entropy(predictive.log_mean_prob(x)), exact.entropy),
    (predictive.expected_entropy, exact.expected_entropy),
    (predictive.mutual_information, exact.mutual_information),
    (predictive.variation_ratio, exact.variation_ratio),
    (lambda x: predictive.top_two_gap(predictive.log_mean_prob(x)), exact.gap),
]
NAMES = ["entropy", "expected_entropy", "mutual_information", "variation_ratio", "gap"]
LOGS = [
    (predictive.log_expected_entropy, exact.expected_entropy),
    (predictive.log_variation_ratio, exact.variation_ratio),
]


@pytest.mark.parametrize(("value", "true"), VALUES, ids=NAMES)
@shapes
@settings(max_examples=15)
@given(data=st.data())
def test_values_are_exact(
    value: Callable[[Tensor], Tensor], true: Callable[[list[list[float]]], float], classes: int, data: st.DataObject
) -> None:
    drawn = data.draw(random_logits(3, classes))
    assert value(one_sample(drawn, torch.float64)).item() == pytest.approx(float(true(drawn)), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("value", "true"), LOGS, ids=["expected_entropy", "variation_ratio"])
@every_dtype
@members
@settings(max_examples=10)
@given(data=st.data())
def test_logs_and_their_gradients_are_exact(
    value: Callable[[Tensor], Tensor],
    true: Callable[[list[list[float]]], float],
    dtype: torch.dtype,
    count: int,
    data: st.DataObject,
) -> None:
    """Gaps up to 1e4: the quantity itself is e^-10000 there, far below any float."""
    drawn = data.draw(random_logits(count, 3))
    logits = one_sample(drawn, dtype)
    close = 1e-5 if dtype == torch.float32 else 1e-9
    assert value(logits).item() == pytest.approx(float(exact.mp.log(true(drawn))), rel=close, abs=close)
    assert gradient(value, logits).isfinite().all()
    ordered = sorted(exact.log_mean_prob(drawn), reverse=True)
    if ordered[0] - ordered[1] > 1e-3:
        true_slope = torch.tensor([[float(x) for x in row] for row in exact.gradient_of_log(true, drawn)]).double()
        slope = gradient(value, logits)[:, 0].double()
        torch.testing.assert_close(slope, true_slope, rtol=PRECISION[dtype], atol=PRECISION[dtype])


@shapes
@settings(max_examples=15)
@given(data=st.data())
def test_log_mutual_information_is_exact(classes: int, data: st.DataObject) -> None:
    drawn = data.draw(random_logits(3, classes))
    logits = one_sample(drawn, torch.float64)
    assert gradient(predictive.log_mutual_information, logits).isfinite().all()
    if len({tuple(x - row[0] for x in row) for row in drawn}) > 1:
        value = float(exact.mp.log(exact.mutual_information(drawn)))
        assert predictive.log_mutual_information(logits).item() == pytest.approx(value, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("sure", [50.0, 1e3, 1e4])
def test_mutual_information_lives_where_the_entropies_have_underflowed(sure: float) -> None:
    """Two members, sure of the same class, one a little more than the other."""
    drawn = [[sure, 0.0], [sure + 1, 0.0]]
    logits = one_sample(drawn, torch.float64)
    value = float(exact.mp.log(exact.mutual_information(drawn)))
    assert value < -sure
    assert predictive.log_mutual_information(logits).item() == pytest.approx(value, rel=1e-9)
    slope = gradient(predictive.log_mutual_information, logits)[:, 0].tolist()
    true_slope = [[float(x) for x in row] for row in exact.gradient_of_log(exact.mutual_information, drawn)]
    assert slope == [pytest.approx(row, rel=1e-6) for row in true_slope]


@every_dtype
def test_members_that_agree_have_no_mutual_information(dtype: torch.dtype) -> None:
    logits = one_sample([[0.3, -1.0, 2.0]] * 3, dtype)
    assert 0 <= predictive.mutual_information(logits).item() < torch.finfo(dtype).eps
    assert gradient(predictive.log_mutual_information, logits).isfinite().all()


def test_one_member_has_no_mutual_information() -> None:
    message = "^mutual information needs at least 2 members, got 1: use entropy, or an Ensemble$"
    with pytest.raises(ValueError, match=message):
        predictive.mutual_information(torch.zeros(1, 4, 3))


@members
@shapes
@settings(max_examples=15)
@given(data=st.data())
def test_members_are_averaged_in_log_space(count: int, classes: int, data: st.DataObject) -> None:
    drawn = data.draw(random_logits(count, classes))
    answer = predictive.log_mean_prob(one_sample(drawn, torch.float64))[0]
    expected = [float(x) for x in exact.log_mean_prob(drawn)]
    torch.testing.assert_close(answer, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_a_networks_answer_is_the_log_of_its_members_mean_probability() -> None:
    networks = [MLP(3, 4) for _ in range(3)]
    points = torch.linspace(-1, 1, 15).view(5, 3)
    mean = torch.stack([network(points).softmax(-1) for network in networks]).mean(0)
    torch.testing.assert_close(Ensemble(networks)(points).exp(), mean)


def test_gap_is_the_lead_of_the_first_over_the_second() -> None:
    log_probs = torch.tensor([[0.1, 0.7, 0.2], [0.4, 0.4, 0.2]]).log()
    torch.testing.assert_close(predictive.top_two_gap(log_probs), torch.tensor([math.log(3.5), 0.0]))
