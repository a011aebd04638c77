"""Which diagnoses apply?  All of them, the cheap ones first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from widemargin.data.dataset import Examples
from widemargin.measure.diagnostics.attacks import MANY_STEPS, Broken, broken_by
from widemargin.measure.diagnostics.finding import Finding, failed_finding, sentence_of
from widemargin.measure.diagnostics.gradients import gradients, loss_surface
from widemargin.measure.diagnostics.sanity import inputs_in_box, modes, probabilities, randomness
from widemargin.measure.diagnostics.strength import black_box, large_radius, more_steps, random_noise, rising, transfer
from widemargin.measure.distance import check_alone
from widemargin.perturb.balls import Ball
from widemargin.perturb.pgd import PGD
from widemargin.perturb.square import Square
from widemargin.uncertainty.network import Network

_STEPS = 10
_TARGETS = 9
_QUERIES = 300


def all_findings(
    network: Network,
    examples: Examples,
    ball: Ball,
    curve: Sequence[tuple[float, float, int]] = (),
    surrogates: Sequence[Network] = (),
    seed: int = 0,
    tick: Callable[[Finding], None] | None = None,
) -> tuple[Finding, ...]:
    """Every diagnosis that applies, the cheap ones first; `tick` is handed each as soon as it is there.

    A few hundred examples are enough.  If they do not lie in the ball's box, nothing is attacked: no attack could mean
    anything there.  `curve` is as for `rising`; with less than two radii or without surrogates, those diagnoses
    are left out.  A diagnosis that fails says so, and the others are made.
    """
    check_alone(network)
    asked, found = _Asked(network, examples, ball, tuple(curve), tuple(surrogates), seed), list[Finding]()
    for name in DIAGNOSES:
        if asked.applies(name):
            found.append(_made(name, asked))
            if tick is not None:
                tick(found[-1])
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _Asked:
    network: Network
    examples: Examples
    ball: Ball
    curve: tuple[tuple[float, float, int], ...]
    surrogates: tuple[Network, ...]
    seed: int

    def applies(self, name: str) -> bool:
        needs = {"rising": len(self.curve) > 1, "transfer": len(self.surrogates) > 0}
        return needs.get(name, True) and (name not in _ATTACKING or self.box.verdict != "wrong")

    @cached_property
    def box(self) -> Finding:
        return inputs_in_box(self.examples, self.ball)

    def broken(self, steps: int, targets: int = 0) -> Broken:
        return broken_by(self.network, self.examples, PGD(self.ball, steps, targets), self.seed)

    @cached_property
    def few(self) -> Broken:
        return self.broken(_STEPS)

    @cached_property
    def many(self) -> Broken:
        return self.few | self.broken(MANY_STEPS)

    @cached_property
    def white(self) -> Broken:
        return self.many | self.broken(MANY_STEPS, _TARGETS)

    @cached_property
    def square(self) -> Broken:
        return broken_by(self.network, self.examples, Square(self.ball, _QUERIES), self.seed)


_CHEAP: dict[str, Callable[[_Asked], Finding]] = {
    "inputs in box": lambda of: of.box,
    "modes": lambda of: modes(of.network, of.examples),
    "probabilities": lambda of: probabilities(of.network, of.examples),
    "randomness": lambda of: randomness(of.network, of.examples),
    "gradients": lambda of: gradients(of.network, of.examples),
    "rising": lambda of: rising(of.curve),
}
_ATTACKING: dict[str, Callable[[_Asked], Finding]] = {
    "loss surface": lambda of: loss_surface(of.network, of.examples, of.ball),
    "more steps": lambda of: more_steps(of.few, of.many),
    "random noise": lambda of: random_noise(of.network, of.examples, of.ball, of.white, of.seed),
    "black box": lambda of: black_box({"pgd": of.white}, {"square": of.square}),
    "transfer": lambda of: transfer(of.network, of.examples, of.ball, of.surrogates, of.white),
    "large radius": lambda of: large_radius(of.network, of.examples, of.ball, of.seed),
}
_EVERY = _CHEAP | _ATTACKING
DIAGNOSES = tuple(_EVERY)
"""Their names, in the order in which they are made."""


def _made(name: str, asked: _Asked) -> Finding:
    try:
        return _EVERY[name](asked)
    except Exception as problem:
        # A network of others may raise anything.
        return failed_finding(name, sentence_of(problem), "nothing is known of it")
