import pytest
import torch

from widemargin.data.images import ImageSet
from widemargin_studies.estimators import evaluate

pytest.importorskip("sklearn")


def test_turned_digits_are_the_test_digits_without_zeros() -> None:
    tests = ImageSet("digits").draw().test
    strangers = evaluate.turned(tests)
    assert 0 not in strangers.labels
    assert len(strangers) == int((tests.labels != 0).sum())
    first = int((tests.labels != 0).nonzero()[0])
    assert torch.equal(strangers.points[0, 0, 0], tests.points[first, 0, :, -1])
