"""A network that a Python file of the user's makes, as part of a run."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Generator, nn
from torch.nn.parameter import is_lazy

from widemargin.parts import part
from widemargin.rng import Rng


@part
@dataclass(frozen=True)
class UserNetwork:
    """What `name()` of a Python file returns.  The file is run, so name only one that you trust.

    `digest` is of the file's content: a run goes on only with the file that it began with.
    """

    path: str
    name: str
    digest: str

    @classmethod
    def at(cls, place: str) -> UserNetwork:
        """From `my_file.py:MyNet`."""
        path, _, name = place.rpartition(":")
        if not path.endswith(".py") or not name.isidentifier():
            raise ValueError(f"a network of your own must be given as my_file.py:MyNet, got {place}")
        return cls(str(Path(path).expanduser().resolve()), name, _digest(Path(path).expanduser()))

    def build(self, rng: Generator) -> nn.Module:
        """Modules draw their first weights from torch's global generator: they are lent one that follows the seed."""
        if _digest(Path(self.path)) != self.digest:
            raise ValueError(f"{self.path} must be as it was when the run began, but it has changed: begin a new run")
        make = self._factory()
        try:
            with Rng((rng,)).as_global():
                network = make()
        except Exception as problem:
            raise ValueError(
                f"{self.name}() of {self.path} must make a network without arguments, got {problem!r}"
            ) from problem
        # The network that torch.compile was given answers the same, has its own names, and can be traced.
        network = getattr(network, "_orig_mod", network)
        if not isinstance(network, nn.Module):
            raise ValueError(f"{self.name}() of {self.path} must be a torch.nn.Module, got a {type(network).__name__}")
        lazy = [name for name, value in network.state_dict(keep_vars=True).items() if is_lazy(value)]
        if lazy:
            raise ValueError(
                f"{self.name}() of {self.path} must know its sizes, got {lazy[0]} of a lazy layer: give that layer its "
                "sizes, or call the network once before returning it"
            )
        return network

    def _factory(self) -> Callable[[], object]:
        specification = importlib.util.spec_from_file_location(f"widemargin_own_{self.digest}", self.path)
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        try:
            specification.loader.exec_module(module)
        except Exception as problem:
            raise ValueError(f"{self.path} must be a Python file that can be imported, got {problem!r}") from problem
        if not callable(getattr(module, self.name, None)):
            names = ", ".join(name for name in vars(module) if not name.startswith("_"))
            raise ValueError(f"{self.path} must have a class or function {self.name}, got {names}")
        return getattr(module, self.name)  # type: ignore[no-any-return]


def _digest(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"{path} does not exist: name a Python file that does")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
