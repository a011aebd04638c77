"""Studies of DUE made tiny."""

import io
from dataclasses import replace

import pytest
import rich.console

from widemargin.networks.spectral import ResidualMLPSpec
from widemargin.training.plan import Adam, Plan, Updates
from widemargin.uncertainty.estimators import DeepKernelSpec
from widemargin.workers import Workers
from widemargin_studies import due, plane


@pytest.fixture
def tiny_due(monkeypatch: pytest.MonkeyPatch) -> Workers:
    monkeypatch.setattr(due, "SEEDS", (0,))
    monkeypatch.setattr(due, "DATA", replace(due.DATA, count=12))
    monkeypatch.setattr(due, "NETWORK", ResidualMLPSpec(2, 2, 8, 1))
    monkeypatch.setattr(due, "MEMBERS", DeepKernelSpec(inducing=4, draws=4))
    monkeypatch.setattr(due, "PLAN", Plan(Updates(2), Adam(0.03)))
    monkeypatch.setattr(plane, "PICTURE_RESOLUTION", 11)
    return Workers(rich.console.Console(file=io.StringIO()), 1)
