"""Sources of chance, made at the top and passed down, never global: `Rng` by network, `RowRng` by example."""

from __future__ import annotations

import hashlib
import math
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

    def by_block(self) -> Rng:
        return self

    def by_row(self, rows: int) -> RowRng:
        """A stream of its own for each of so many rows."""
        return RowRng(0, self.integers(0, 2**62, rows))

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


@dataclass(frozen=True, eq=False)
class RowRng:
    """The row-wise form: what is drawn for an example follows from seed, purpose, row and a counter, not the batch.

    A hash of those (the finaliser of SplitMix64) instead of generators: any part of the rows can be drawn, in any
    order, on any device, all at once.
    """

    seed: int
    rows: Tensor
    """[B] whole numbers: which example each is."""
    purpose: str = ""

    def by_row(self, rows: int) -> RowRng:
        assert rows == len(self.rows), f"{rows} rows, but draws for {len(self.rows)}"
        return self

    def by_block(self) -> Rng:
        """A generator for each row, as if it were alone."""
        return Rng.seeded(*self.rows.tolist(), purpose=f"attack {self.seed} {self.purpose}", device=self.rows.device)

    def at(self, which: Tensor) -> RowRng:
        """Of these rows only: indices or a mask."""
        return RowRng(self.seed, self.rows[which], self.purpose)

    def of(self, purpose: str) -> RowRng:
        """An independent stream."""
        return RowRng(self.seed, self.rows, f"{self.purpose}/{purpose}")

    def apart(self, which: Tensor) -> RowRng:
        """For an example that is there several times: of each of them a stream of its own, the 0th as it was."""
        return RowRng(self.seed, self.rows + which * 2**32, self.purpose)

    def uniform(self, *shape: int, draw: int = 0) -> Tensor:
        """[B, *shape] in [0, 1), in steps of 2**-24."""
        return (self._bits(math.prod(shape), draw) & 0xFFFFFF).view(-1, *shape).float() * 2.0**-24

    def integers(self, below: int, *shape: int, draw: int = 0) -> Tensor:
        """[B, *shape] in 0..below - 1."""
        return (self.uniform(*shape, draw=draw).double() * below).long()

    def signs(self, *shape: int, draw: int = 0) -> Tensor:
        """[B, *shape] of -1.0 and 1.0."""
        return (self.uniform(*shape, draw=draw) < 0.5).float() * 2 - 1

    def normal(self, *shape: int, draw: int = 0) -> Tensor:
        """[B, *shape] by Box and Muller."""
        first, second = self.uniform(2, *shape, draw=draw).unbind(1)
        return (-2 * torch.log1p(-first)).sqrt() * (2 * math.pi * second).cos()

    def _bits(self, count: int, draw: int) -> Tensor:
        stream = hashlib.sha256(f"{self.seed} {self.purpose} {draw}".encode()).digest()[:8]
        keys = _hashed(self.rows + int.from_bytes(stream, "big", signed=True))
        return _hashed(keys[:, None] + torch.arange(1, count + 1, device=keys.device) * _GOLDEN) >> 16


AnyRng = Rng | RowRng
"""What a search or an attack is given: it asks for the form it needs."""


def _mixed(seed: int, purpose: str) -> int:
    if seed < 0:
        raise ValueError(f"a seed must be a whole number >= 0, got {seed}")
    # Neighbouring seeds and purposes must give unrelated streams, on every machine and Python.
    return int.from_bytes(hashlib.sha256(f"{seed} {purpose}".encode()).digest()[:7], "big")


# As signed numbers: torch multiplies 64-bit integers modulo 2**64 all the same.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


def _hashed(bits: Tensor) -> Tensor:
    bits = (bits ^ _shifted(bits, 30)) * _FIRST
    bits = (bits ^ _shifted(bits, 27)) * _SECOND
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, by: int) -> Tensor:
    """To the right as if there were no sign."""
    return (bits >> by) & ((1 << (64 - by)) - 1)
