import hypothesis
import pytest
import torch
from jaxtyping import install_import_hook

# Before anything imports the package: shapes in signatures are checked at run time.
install_import_hook("widemargin", "typechecker.checker")

torch.set_num_threads(1)
hypothesis.settings.register_profile("widemargin", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("widemargin")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """A network without weights of its own draws the same ones whichever tests ran before."""
    torch.manual_seed(0)
