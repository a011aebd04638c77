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
    """One generator per network; with several replicas, each fills its own block of rows.

    A network's draws therefore do not depend on how many others are trained beside it.  A process that has a shard of a
    batch draws for the whole batch and keeps its own rows: together they draw what one would.
    """

    generators: tuple[Generator, ...]
    shard: range | None = None
    whole: int = 0

    def for_shard(self, shard: range, whole: int) -> Rng:
        """For these rows of a batch of so many."""
        return replace(self, shard=shard, whole=whole)

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
        shape = (self._block(self._all(rows)),)
        drawn = [torch.randint(low, high + 1, shape, generator=g, device=g.device) for g in self.generators]
        return self._own(torch.cat(drawn))

    def permutations(self, rows: int) -> Tensor:
        """[networks, rows / networks]: row numbers, shuffled inside each network's own block."""
        size = self._block(rows)
        shuffled = [torch.randperm(size, generator=g, device=g.device) for g in self.generators]
        return torch.stack([block * size + order for block, order in enumerate(shuffled)])

    @contextmanager
    def as_global(self) -> Iterator[None]:
        """For layers that draw from torch's global generator and take no other: it is as before afterwards."""
        with torch.random.fork_rng():
            torch.manual_seed(self.generators[0].initial_seed())
            yield

    def _by_block(self, like: Tensor, draw: Callable[..., Tensor]) -> Tensor:
        shape = (self._block(self._all(len(like))), *like.shape[1:])
        drawn = [draw(shape, generator=g, dtype=like.dtype, device=like.device) for g in self.generators]
        return self._own(drawn[0] if len(drawn) == 1 else torch.cat(drawn))

    def _all(self, rows: int) -> int:
        """How many are drawn where so many are asked for."""
        if self.shard is None:
            return rows
        if rows != len(self.shard):
            raise ValueError(
                f"several processes must each draw for the {len(self.shard)} rows of their shard, got {rows} rows: "
                "train in one process"
            )
        return self.whole

    def _own(self, drawn: Tensor) -> Tensor:
        return drawn if self.shard is None else drawn[self.shard.start : self.shard.stop]

    def _block(self, rows: int) -> int:
        size, rest = divmod(rows, len(self.generators))
        assert rest == 0, f"{rows} rows do not divide among {len(self.generators)} generators"
        return size


def _mixed(seed: int, purpose: str) -> int:
    if seed < 0:
        raise ValueError(f"a seed must be a whole number >= 0, got {seed}")
    # Neighbouring seeds and purposes must give unrelated streams, on every machine and Python.
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose}".encode()).digest()[:7], "big")
