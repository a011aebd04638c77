import math

import numpy as np
import pytest
import torch
from torch import nn

from widemargin import Dataset, Single, at_input
from widemargin.data.toy import TwoGaussians
from widemargin.measure.boundary import Window, lead, log_probs, zero_lines
from widemargin.rng import Rng
from widemargin.uncertainty.network import Network

POINTS = 2 * Rng.seeded(0).uniform(torch.empty(12, 2)) - 1


def linear(weight: list[list[float]], bias: list[float]) -> Network:
    layer = nn.Linear(2, len(weight)).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight, dtype=torch.float64))
        layer.bias.copy_(torch.tensor(bias, dtype=torch.float64))
    return Single(at_input(layer))


def test_answers_keep_the_shape_of_the_points() -> None:
    network = linear([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], [0.0, 0.0, 0.0])
    points = np.linspace(-1, 1, 24).reshape(3, 4, 2)
    answers = log_probs(network, points)
    assert answers.shape == (3, 4, 3)
    np.testing.assert_allclose(np.exp(answers).sum(-1), 1)
    np.testing.assert_allclose(lead(answers, 0), points[..., 0] - np.maximum(points[..., 1], points.mean(-1)))


def test_the_window_holds_the_cloud_and_its_rim() -> None:
    cloud = Dataset(torch.tensor([[0.0, 0.0], [2.0, 1.0]]), torch.tensor([0, 1]))
    assert Window.around(cloud, pad=0.5) == Window(-0.5, 2.5, -0.5, 1.5)
    rim = 1.1 * math.sqrt(5) / 2
    assert Window.around(cloud).left == pytest.approx(-rim)
    corners = Window(0.0, 2.0, -1.0, 1.0).points(2)
    assert corners.tolist() == [[0.0, -1.0], [2.0, -1.0], [0.0, 1.0], [2.0, 1.0]]


def test_zero_lines_run_where_values_change_sign() -> None:
    x = y = np.linspace(-1, 1, 5)
    (line,) = zero_lines(x, y, np.tile(x - 0.25, (5, 1)))
    np.testing.assert_allclose(line[:, 0], 0.25)
    assert zero_lines(x, y, np.ones((5, 5))) == []


@pytest.mark.parametrize(
    ("cloud", "message"),
    [
        (TwoGaussians().draw(), "the boundary is drawn in the plane: points must have 2 features, got 1"),
        (
            Dataset(POINTS, torch.zeros(12, dtype=torch.int64)),
            "a boundary lies between classes: the cloud must hold at",
        ),
    ],
    ids=["one feature", "one class"],
)
def test_clouds_without_a_boundary_to_draw_are_refused(cloud: Dataset, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        Window.around(cloud)
