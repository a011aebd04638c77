from pathlib import Path

import numpy as np
import torch
from torch import nn

from small_audits import images
from widemargin.auditing.adversarial import adversarial, npz
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Dataset
from widemargin.perturb.balls import L2, OPEN
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single


def test_examples_are_those_of_correct_points_with_a_known_place_in_the_order_of_the_data() -> None:
    linear = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[-1.0], [1.0]]))
    inputs = torch.tensor([[-1.0], [0.5], [2.0], [3.0]])
    target = AuditTarget(Single(at_input(linear)), "line", "", Dataset(inputs, torch.tensor([0, 1, 1, 0])), "line")
    points = {
        "row": np.array([2, 3, 1, 0]),
        "label": np.array([1, 0, 1, 0]),
        "answer": np.array([1, 1, 1, 0]),
        "place": np.array([[-0.1], [3.0], [-0.1], [-1.0]], dtype=np.float32),
        "way": np.array([2.1, 0.0, 0.6, np.inf]),
    }
    found = adversarial(target, AuditConfig((L2(0.5, OPEN), L2(0.6, OPEN), L2(1.0, OPEN))), points)
    assert found.norm == "l2"
    assert found.rows.tolist() == [1, 2]
    assert found.inputs.tolist() == [[0.5], [2.0]]
    assert np.array_equal(found.adversarial, points["place"][[2, 0]])
    assert (found.labels.tolist(), found.predictions.tolist()) == ([1, 1], [1, 1])
    assert found.adversarial_predictions.tolist() == [0, 0]
    assert found.radius.tolist() == [0.6, np.inf]
    assert not found.are_images


def test_adversarial_examples_are_arrays_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "some.npz").write_bytes(npz(images(3)))
    with np.load(tmp_path / "some.npz") as stored:
        assert set(stored) == {
            "norm", "rows", "inputs", "adversarial", "labels", "predictions", "adversarial_predictions", "distance",
            "radius",
        }  # fmt: skip
        assert str(stored["norm"]) == "linf"
        assert np.array_equal(stored["adversarial"], images(3).adversarial)
