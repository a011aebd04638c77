"""Where does chance come from?  From generators made at the top and passed down, never from global state."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor


@dataclass(frozen=True)
class Rng:
    """One generator per network; with several networks abreast, each fills its own block of rows.

    A network's draws therefore do not depend on how many others are trained beside it.  A process that has one of
    `count` equal shares of a batch draws for the whole batch and keeps its own: together they draw what one would.
    """

    generators: tuple[Generator, ...]
    rank: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if self.count > 1 and len(self.generators) > 1:
            raise ValueError(f"several processes train one network, got {len(self.generators)} abreast")

    def for_share(self, rank: int, count: int) -> Rng:
        return replace(self, rank=rank, count=count)

    @classmethod
    def seeded(cls, *seeds: int, purpose: str = "", device: torch.device | str = "cpu") -> Rng:
        """One generator per seed; different purposes give independent streams of the same seed."""
        if not seeds:
            raise ValueError("Rng.seeded needs at least one seed, got none")
        return cls(tuple(Generator(device).manual_seed(_mixed(seed, purpose)) for seed in seeds))

    def uniform(self, like: Tensor) -> Tensor:
        return self._by_block(like, torch.rand)

    def normal(self, like: Tensor) -> Tensor:
        return self._by_block(like, torch.randn)

    def integers(self, low: int, high: int, rows: int) -> Tensor:
        """Whole numbers in low..high, both ends included."""
        share = self._share(rows) * self.count
        drawn = [torch.randint(low, high + 1, (share,), generator=g, device=g.device) for g in self.generators]
        return self._own(torch.cat(drawn))

    def permutations(self, rows: int) -> Tensor:
        """[networks, rows / networks]: row numbers, shuffled inside each network's own block."""
        share = self._share(rows)
        shuffled = [torch.randperm(share, generator=g, device=g.device) for g in self.generators]
        return torch.stack([block * share + order for block, order in enumerate(shuffled)])

    @contextmanager
    def as_global(self) -> Iterator[None]:
        """For layers that draw from torch's global generator and take no other: it is as before afterwards."""
        with torch.random.fork_rng():
            torch.manual_seed(self.generators[0].initial_seed())
            yield

    def _by_block(self, like: Tensor, draw: Callable[..., Tensor]) -> Tensor:
        shape = (self._share(len(like)) * self.count, *like.shape[1:])
        drawn = [draw(shape, generator=g, dtype=like.dtype, device=like.device) for g in self.generators]
        return self._own(drawn[0] if len(drawn) == 1 else torch.cat(drawn))

    def _own(self, drawn: Tensor) -> Tensor:
        return drawn if self.count == 1 else drawn.tensor_split(self.count)[self.rank]

    def _share(self, rows: int) -> int:
        share, rest = divmod(rows, len(self.generators))
        assert rest == 0, f"{rows} rows do not divide among {len(self.generators)} generators"
        return share


def _mixed(seed: int, purpose: str) -> int:
    if seed < 0:
        raise ValueError(f"a seed must be a whole number >= 0, got {seed}")
    # Neighbouring seeds and purposes must give unrelated streams, on every machine and Python.
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose}".encode()).digest()[:7], "big")
