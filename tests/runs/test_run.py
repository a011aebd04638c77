from dataclasses import replace

import pytest
import torch

from front_door import public_names
from widemargin import Adam, Epochs, Linf, Plan, Updates, udp
from widemargin.data.images import ImageSet
from widemargin.data.toy import LMS5
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.named import LeNetSpec
from widemargin.recipes import standard
from widemargin.runs.run import Run, Validation

RUN = Run(LMS5(), MLPSpec((2, 4, 2)), standard(), Plan(Updates(3), Adam(0.1)), 1)


TRIAL = Run(ImageSet("digits"), LeNetSpec(side=8), udp(Linf(0.1), 0.03, 4), Plan(Epochs(2), Adam(0.001), 32))


@pytest.mark.parametrize("run", [RUN, TRIAL], ids=["run", "trial"])
def test_repr_is_the_code_that_makes_it(run: Run | Run) -> None:
    assert eval(repr(run), public_names()) == run


def test_the_seed_decides_the_first_weights() -> None:
    first, again, other = (replace(TRIAL, seed=seed).build().encoder.conv1.weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_validation_comes_after_whole_epochs() -> None:
    with pytest.raises(ValueError, match=r"^Validation.every must be a whole number of at least 1 epoch, got 0$"):
        Validation(0)
