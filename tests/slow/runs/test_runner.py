import multiprocessing
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from kills import check


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Processes that begin in no time, because their parent has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["widemargin.runs.fit", "sklearn.datasets", "torch._dynamo"])
    first = context.Process(target=int)
    first.start()
    first.join()
    return context


@pytest.mark.slow
def test_ten_kills_and_more_change_nothing(processes: ForkServerContext, tmp_path: Path) -> None:
    check(processes, tmp_path, kills=14, needed=10, epochs=60)
