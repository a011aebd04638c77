import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widemargin.data.dataset import Dataset
from widemargin.measure.calibration import calibration, calibration_of
from widemargin.measure.scaling import fit_scaling, scaling_of
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.ensemble import Ensemble
from widemargin.uncertainty.scaling import Scaled
from widemargin.uncertainty.single import Single
from widemargin.uncertainty.wrap import as_network


def case(rows: int = 300, classes: int = 4, true_temperature: float = 2.5) -> tuple[Tensor, Tensor]:
    """Logits that are too confident by a known factor."""
    rng = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(rows, classes, generator=rng, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=rng)[:, 0]
    return true_temperature * logits, labels


def nll(logits: Tensor, labels: Tensor) -> float:
    return calibration_of(logits[None], labels).nll


def test_the_temperature_is_that_of_a_fine_grid() -> None:
    logits, labels = case()
    temperatures = torch.linspace(1.5, 4, 2_501, dtype=torch.float64)
    losses = -(logits / temperatures[:, None, None]).log_softmax(-1)[:, torch.arange(len(labels)), labels].mean(1)
    best = float(temperatures[losses.argmin()])
    fitted = 1 / scaling_of(logits, labels).weight[0]
    assert fitted == pytest.approx(best, abs=1e-3)
    assert fitted == pytest.approx(2.5, rel=0.2), "what they were made with"


@pytest.mark.parametrize("kind", ["temperature", "vector"])
def test_the_fit_is_scipys(kind: str) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    logits, labels = case()
    fitted = scaling_of(logits, labels, kind)  # type: ignore[arg-type]

    def loss(values: np.ndarray) -> float:
        weight, bias = (values, np.zeros(4)) if kind == "temperature" else (values[:4], values[4:])
        return nll(logits * torch.tensor(weight) + torch.tensor(bias), labels)

    start = np.ones(1) if kind == "temperature" else np.repeat([1.0, 0.0], 4)
    found = optimize.minimize(loss, start, method="BFGS")
    assert nll(fitted(logits), labels) <= found.fun + 1e-9
    np.testing.assert_allclose(fitted.weight[: len(start) // 2 or 1], found.x[: len(start) // 2 or 1], atol=1e-3)


def test_scaling_lowers_the_likelihood_loss_and_a_temperature_changes_no_prediction() -> None:
    logits, labels = case()
    before = calibration_of(logits[None], labels)
    cooled, each = (scaling_of(logits, labels, kind) for kind in ("temperature", "vector"))  # type: ignore[arg-type]
    after, further = (calibration_of(one(logits)[None], labels) for one in (cooled, each))
    assert further.nll <= after.nll < before.nll
    assert after.ece < before.ece
    assert torch.equal(cooled(logits).argmax(1), logits.argmax(1))
    assert after.accuracy == before.accuracy


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("kind", ["temperature", "vector"])
def test_a_scaled_network_has_the_likelihood_of_the_fit(members: int, kind: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        nets = [nn.Linear(3, 4) for _ in range(members)]
    network = Single(at_input(nets[0])) if members == 1 else Ensemble(nets)
    points, labels = torch.randn(90, 3, generator=torch.Generator().manual_seed(1)), torch.arange(90) % 4
    examples = Dataset(points, (network(points).argmax(1) * (torch.arange(90) % 3 > 0) + labels) % 4)
    scaling = fit_scaling(network, examples, kind)  # type: ignore[arg-type]
    scaled = as_network(Scaled(network, scaling))
    assert calibration(scaled, examples).nll < calibration(network, examples).nll
    if kind == "temperature":
        expected = nll(network(points).detach().double() * scaling.weight[0], examples.labels)
        assert calibration(scaled, examples).nll == pytest.approx(expected, rel=1e-5)
        assert torch.equal(scaled(points).argmax(1), network(points).argmax(1)), "also of the members' mean"


def test_what_has_no_best_scaling_is_one_sentence() -> None:
    logits, labels = case()
    with pytest.raises(ValueError, match="all 300 validation examples are classified correctly"):
        scaling_of(logits, logits.argmax(1))
    with pytest.raises(ValueError, match="of every class, got none of class 3: give more, or fit a temperature"):
        scaling_of(logits[labels < 3], labels[labels < 3], "vector")
    assert scaling_of(logits[labels < 3], labels[labels < 3]).kind == "temperature"
    with pytest.raises(ValueError, match="better than chance"):
        scaling_of(-logits, labels)


def test_a_vector_that_separates_all_examples_is_no_fit() -> None:
    logit = torch.linspace(-2, 2, 40, dtype=torch.float64)[:, None]
    with pytest.raises(ValueError, match="has no best fit, since one classifies all of them correctly"):
        scaling_of(torch.cat([-logit, logit], 1), (logit[:, 0] > 0.3).long(), "vector")
