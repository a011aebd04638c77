"""Progress and cost of an audit, counted in the network's forward and backward passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from widemargin.perturb.frozen import frozen
from widemargin.uncertainty.network import Network

OnProgress = Callable[[int, int], None]
"""Called with how many points are done, and of how many; those under way count by their share."""
FIRST_GUESS = 5_000
"""Answers that a point takes, until some are done: of those that stand most are Square's."""
PROOF = 1_000
"""Answers that take about as long as one point's certificate."""

# Of a point that no attack breaks, by the steps of the standard's attacks: in its ball, and there for each target.
_SLOPES, _SLOPES_FOR_TARGET = 100, 200
_ANSWERS, _ANSWERS_FOR_TARGET = 5_000, 100
# Of every point: the attacks without a radius, as they were counted.
_SLOPES_WITHOUT_RADIUS, _ANSWERS_WITHOUT_RADIUS = 700, 500
# Where FMN has several starts: of each, and of the eight that go twice, towards each of its targets; two attacks less
# are needed.
_SLOPES_FOR_START, _SLOPES_AGAIN, _SLOPES_SAVED, _TARGETS_OF_FMN = 60, 480, 500, 3


@dataclass(frozen=True)
class Cost:
    """Seconds that a point takes in one pass, forward alone and with the way back."""

    answer: float
    slope: float

    def of_point(self, classes: int, starts: int) -> float:
        """Seconds that a point may take which stands: for all attacks, in one ball, since it stands in the largest.

        `starts`: from how many places a search without a radius begins (`perturb.suites.starts_of`).
        """
        targets = min(9, classes - 1)
        slopes = _SLOPES_WITHOUT_RADIUS + _SLOPES + targets * _SLOPES_FOR_TARGET
        if starts > 1:
            slopes += min(_TARGETS_OF_FMN, targets) * (starts * _SLOPES_FOR_START + _SLOPES_AGAIN) - _SLOPES_SAVED
        answers = _ANSWERS_WITHOUT_RADIUS + _ANSWERS + targets * _ANSWERS_FOR_TARGET
        return slopes * self.slope + answers * self.answer


def cost(judge: Network, climbed: Network, inputs: Tensor, now: Callable[[], float] = time.monotonic) -> Cost:
    """Each pass twice, of which the quicker counts: the first may have to prepare something."""

    def slope() -> None:
        points = inputs.detach().requires_grad_()
        with torch.enable_grad():
            climbed(points).sum().backward(inputs=[points])

    with frozen(judge), frozen(climbed), torch.no_grad():
        answer = _seconds(lambda: judge(inputs), now)
        try:
            return Cost(answer / len(inputs), _seconds(slope, now) / len(inputs))
        except Exception:
            # No gradients: that will be said by the attacks that need them.
            return Cost(answer / len(inputs), answer / len(inputs))


def _seconds(work: Callable[[], object], now: Callable[[], float]) -> float:
    took = []
    for _ in range(2):
        begun = now()
        work()
        took.append(now() - begun)
    return min(took)


@dataclass(eq=False)
class Pace:
    on_progress: OnProgress
    of: int
    expected: float = FIRST_GUESS
    """Answers for a point."""

    @contextmanager
    def piece(self, done: int, points: int) -> Iterator[Callable[[int], None]]:
        """Yields what counts the answers of every pass; the next piece is expected to be like this one."""
        answers, reported = 0, done

        def on_answers(more: int) -> None:
            nonlocal answers, reported
            answers += more
            now = done + int(points * _share(answers / (points * self.expected)))
            if now > reported:
                reported = now
                self.on_progress(now, self.of)

        yield on_answers
        self.expected = max(1.0, answers / points)


@contextmanager
def listening(on_answers: Callable[[int], None], *networks: nn.Module) -> Iterator[None]:
    """Every pass of the networks is reported."""

    def report(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        on_answers(len(inputs[0]))

    hooks = [network.register_forward_pre_hook(report) for network in dict.fromkeys(networks)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _share(expected: float) -> float:
    """Of what was expected; should it be more, slower and slower, and never the whole."""
    return expected if expected < 0.8 else 1 - 0.16 / expected
