from collections.abc import Iterator
from typing import Any

import hypothesis
import jaxtyping
import pytest
import torch

import typechecker

typechecker.install("widemargin")

torch.set_num_threads(1)
hypothesis.settings.register_profile("widemargin", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("widemargin")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """A network without weights of its own draws the same ones whichever tests ran before."""
    torch.manual_seed(0)


@pytest.fixture
def untyped() -> Iterator[None]:
    """For wrong guesses: what a user reads who has no checks of types at run time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An audit that was not interrupted."""
    # Here and not above: the import hook comes first.
    from small_audits import audited

    return audited(tmp_path_factory.mktemp("whole"))
