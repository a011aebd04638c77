from collections.abc import Iterator

import hypothesis
import jaxtyping
import pytest
import torch
from jaxtyping import install_import_hook
from torch import fx, nn

# Before anything imports the package: shapes in signatures are checked at run time.
install_import_hook("widemargin", "typechecker.checker")

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


@pytest.fixture
def untyped_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracer calls networks with something that is no tensor: checks of types at run time wait until it is done."""
    trace = fx.Tracer.trace

    def untyped(self: fx.Tracer, root: nn.Module) -> fx.Graph:
        jaxtyping.config.update("jaxtyping_disable", True)
        try:
            return trace(self, root)
        finally:
            jaxtyping.config.update("jaxtyping_disable", False)

    monkeypatch.setattr(fx.Tracer, "trace", untyped)
