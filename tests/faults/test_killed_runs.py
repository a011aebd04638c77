import multiprocessing
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from kills import check
from widemargin.networks.named import LeNetSpec
from widemargin.uncertainty.drawn import PerStep
from widemargin.uncertainty.estimators import EnsembleSpec, MCDropoutSpec


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Processes that begin in no time, because their parent has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["widemargin.runs.fit", "sklearn.datasets", "torch._dynamo"])
    first = context.Process(target=int)
    first.start()
    first.join()
    return context


def test_kills_at_any_moment_change_nothing(processes: ForkServerContext, tmp_path: Path) -> None:
    check(processes, tmp_path, kills=8, needed=5, epochs=12)


@pytest.mark.parametrize(
    "change",
    [
        {"estimator": EnsembleSpec(2)},
        {"network": LeNetSpec(side=8, dropout=0.2), "estimator": MCDropoutSpec(3, PerStep())},
    ],
    ids=repr,
)
def test_kills_change_nothing_where_there_are_members(
    change: dict[str, Any], processes: ForkServerContext, tmp_path: Path
) -> None:
    check(processes, tmp_path, kills=3, needed=1, epochs=3, **change)
