"""All diagnoses, as frozen values, and how they are made in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from widemargin.data.dataset import Examples
from widemargin.measure.diagnostics.attacks import DRAWS, MANY_STEPS, Broken, broken_by
from widemargin.measure.diagnostics.finding import Finding, failed_finding, sentence_of
from widemargin.measure.diagnostics.gradients import gradients, loss_surface
from widemargin.measure.diagnostics.sanity import inputs_in_box, modes, probabilities, randomness
from widemargin.measure.diagnostics.strength import black_box, large_radius, more_steps, random_noise, rising, transfer
from widemargin.measure.distance import check_alone
from widemargin.measure.robustness import pgd_attack, robust_accuracy
from widemargin.perturb.balls import Ball
from widemargin.perturb.pgd import PGD
from widemargin.perturb.square import Square
from widemargin.uncertainty.network import Network


@dataclass(frozen=True)
class Effort:
    """Of the attacks that diagnoses make."""

    steps: int = 10
    many_steps: int = MANY_STEPS
    targets: int = 9
    queries: int = 300
    """Of an attack without gradients."""
    draws: int = DRAWS
    """Random places that are tried for each point."""


@dataclass(frozen=True, eq=False)
class Examined:
    """What diagnoses are given: what several of them need is computed once."""

    network: Network
    examples: Examples
    ball: Ball
    radii: tuple[float, ...] = ()
    """Up to the ball's."""
    surrogates: tuple[Network, ...] = ()
    seed: int = 0
    effort: Effort = Effort()

    @cached_property
    def curve(self) -> tuple[tuple[float, float, int], ...]:
        """Of every radius robust accuracy and number of points, each as if none knew of the others: see `rising`."""
        attacks = [
            pgd_attack(replace(self.ball, radius=radius), radius / 4, self.effort.steps) for radius in self.radii
        ]
        robust = [robust_accuracy(self.network, self.examples, attack) for attack in attacks]
        return tuple((*pair, len(self.examples)) for pair in zip(self.radii, robust, strict=True))

    @cached_property
    def box(self) -> Finding:
        return inputs_in_box(self.examples, self.ball)

    def broken(self, steps: int, targets: int = 0) -> Broken:
        return broken_by(self.network, self.examples, PGD(self.ball, steps, targets), self.seed)

    @cached_property
    def few(self) -> Broken:
        return self.broken(self.effort.steps)

    @cached_property
    def many(self) -> Broken:
        return self.few | self.broken(self.effort.many_steps)

    @cached_property
    def white(self) -> Broken:
        return self.many | self.broken(self.effort.many_steps, self.effort.targets)

    @cached_property
    def square(self) -> Broken:
        return broken_by(self.network, self.examples, Square(self.ball, self.effort.queries), self.seed)


@dataclass(frozen=True)
class Diagnosis:
    """Something for which attacks fail, and how it is looked for; its finding gets its name."""

    name: str
    make: Callable[[Examined], Finding]
    sanity: bool = False
    """Of what was handed over, and next to free: in an audit there is always time for it, so it comes first."""
    attacks: bool = False
    """Whether points are attacked: in vain where they lie outside the box."""
    applies: Callable[[Examined], bool] = lambda of: True

    def __repr__(self) -> str:
        return repr(self.name)


DIAGNOSES = (
    Diagnosis("inputs in box", lambda of: of.box, sanity=True),
    Diagnosis("modes", lambda of: modes(of.network, of.examples), sanity=True),
    Diagnosis("probabilities", lambda of: probabilities(of.network, of.examples), sanity=True),
    Diagnosis("randomness", lambda of: randomness(of.network, of.examples), sanity=True),
    Diagnosis("gradients", lambda of: gradients(of.network, of.examples)),
    Diagnosis("rising", lambda of: rising(of.curve), applies=lambda of: len(of.radii) > 1),
    Diagnosis("loss surface", lambda of: loss_surface(of.network, of.examples, of.ball), attacks=True),
    Diagnosis("more steps", lambda of: more_steps(of.few, of.many), attacks=True),
    Diagnosis(
        "random noise",
        lambda of: random_noise(of.network, of.examples, of.ball, of.white, of.seed, of.effort.draws),
        attacks=True,
    ),
    Diagnosis(
        "black box",
        lambda of: black_box({"pgd": of.white}, {"square": of.square}),
        attacks=True,
        # Square knows the l_p norms alone.
        applies=lambda of: of.ball.p is not None,
    ),
    Diagnosis(
        "transfer",
        lambda of: transfer(of.network, of.examples, of.ball, of.surrogates, of.white, of.effort.many_steps),
        attacks=True,
        applies=lambda of: len(of.surrogates) > 0,
    ),
    Diagnosis(
        "large radius",
        lambda of: large_radius(of.network, of.examples, of.ball, of.seed, of.effort.many_steps),
        attacks=True,
        # Where features are held fixed, no other example need lie in the ball.
        applies=lambda of: not of.ball.box.fixed,
    ),
)
"""In the order in which they are made, the cheap ones first."""


def _made(diagnosis: Diagnosis, examined: Examined) -> Finding:
    try:
        return replace(diagnosis.make(examined), name=diagnosis.name)
    except Exception as problem:
        # A network of others may raise anything.
        return failed_finding(diagnosis.name, sentence_of(problem), "nothing is known of it")


def all_findings(
    examined: Examined,
    on_progress: Callable[[Finding], None] | None = None,
    diagnoses: Sequence[Diagnosis] = DIAGNOSES,
) -> tuple[Finding, ...]:
    """Every diagnosis that applies, in their order; `on_progress` is handed each as soon as it is there.

    A few hundred examples are enough.  If they do not lie in the ball's box, nothing is attacked: no attack could mean
    anything there.  At the radii accuracy is compared; with less than two, or without surrogates, those diagnoses
    are left out.  A diagnosis that fails says so, and the others are made.
    """
    check_alone(examined.network)
    findings = list[Finding]()
    for diagnosis in diagnoses:
        if diagnosis.applies(examined) and not (diagnosis.attacks and examined.box.verdict == "wrong"):
            findings.append(_made(diagnosis, examined))
            if on_progress is not None:
                on_progress(findings[-1])
    return tuple(findings)
