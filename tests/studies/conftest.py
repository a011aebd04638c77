"""The deep kernel of DUE made tiny."""

import pytest

from widemargin.data.toy import TwoDistances
from widemargin.networks.spectral import ResidualMLPSpec
from widemargin.training.plan import Adam, Plan, Updates
from widemargin.uncertainty.estimators import DeepKernelSpec
from widemargin_studies.due import Due
from widemargin_studies.plane import Grids


@pytest.fixture
def tiny_due() -> Due:
    return Due(
        seeds=(0,),
        data=TwoDistances(seed=0, count=12),
        network=ResidualMLPSpec(2, 2, 8, 1),
        estimator=DeepKernelSpec(inducing=4, draws=4),
        plan=Plan(Updates(2), Adam(0.03)),
        steps=2,
        grids=Grids(resolution=41, refinements=0, picture=11),
    )
