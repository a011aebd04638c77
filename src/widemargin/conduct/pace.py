"""How far is an audit with the points under way?  Counted in the network's answers, which are what takes the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

Tick = Callable[[int, int], None]
"""Told how many points are done, and of how many; those under way count by their share."""
FIRST_GUESS = 5_000
"""Answers that a point takes, until some are done: of those that stand most are Square's."""
PROOF = 1_000
"""Answers that take about as long as one point's certificate."""


@dataclass(eq=False)
class Pace:
    tick: Tick
    of: int
    expected: float = FIRST_GUESS
    """Answers for a point."""

    @contextmanager
    def piece(self, done: int, points: int) -> Iterator[Callable[[int], None]]:
        """What is yielded wants to hear of every answer to these points; the next piece is expected to be like it."""
        answers, told = 0, done

        def heard(more: int) -> None:
            nonlocal answers, told
            answers += more
            now = done + int(points * _share(answers / (points * self.expected)))
            if now > told:
                told = now
                self.tick(now, self.of)

        yield heard
        self.expected = max(1.0, answers / points)


@contextmanager
def listening(heard: Callable[[int], None], *networks: nn.Module) -> Iterator[None]:
    """Whatever the networks are asked is heard of."""

    def asked(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        heard(len(inputs[0]))

    hooks = [network.register_forward_pre_hook(asked) for network in dict.fromkeys(networks)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _share(expected: float) -> float:
    """Of what was expected; should it be more, slower and slower, and never the whole."""
    return expected if expected < 0.8 else 1 - 0.16 / expected
