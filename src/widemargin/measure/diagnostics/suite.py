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
from widemargin.measure.robustness import robust_accuracy
from widemargin.perturb.balls import Ball
from widemargin.perturb.pgd import PGD, pgd_search
from widemargin.perturb.square import Square
from widemargin.uncertainty.network import Network, check_alone


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
            pgd_search(replace(self.ball, radius=radius), radius / 4, self.effort.steps) for radius in self.radii
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


def _always(of: Examined) -> bool:
    return True


@dataclass(frozen=True)
class Diagnosis:
    """Something for which attacks fail, and how it is looked for; its finding gets its name."""

    name: str
    make: Callable[[Examined], Finding]
    sanity: bool = False
    """Of what was handed over, and next to free: in an audit there is always time for it, so it comes first."""
    attacks: bool = False
    """Whether points are attacked: in vain where they lie outside the box."""
    applies: Callable[[Examined], bool] = _always

    def __repr__(self) -> str:
        return repr(self.name)


# Functions with names, so that an audit's configuration can be sent to another process.
def _box(of: Examined) -> Finding:
    return of.box


def _modes(of: Examined) -> Finding:
    return modes(of.network, of.examples)


def _probabilities(of: Examined) -> Finding:
    return probabilities(of.network, of.examples)


def _randomness(of: Examined) -> Finding:
    return randomness(of.network, of.examples)


def _gradients(of: Examined) -> Finding:
    return gradients(of.network, of.examples)


def _rising(of: Examined) -> Finding:
    return rising(of.curve)


def _has_radii(of: Examined) -> bool:
    return len(of.radii) > 1


def _loss_surface(of: Examined) -> Finding:
    return loss_surface(of.network, of.examples, of.ball)


def _more_steps(of: Examined) -> Finding:
    return more_steps(of.few, of.many)


def _random_noise(of: Examined) -> Finding:
    return random_noise(of.network, of.examples, of.ball, of.white, of.seed, of.effort.draws)


def _black_box(of: Examined) -> Finding:
    return black_box({"pgd": of.white}, {"square": of.square})


def _square_knows_the_norm(of: Examined) -> bool:
    """The l_p norms alone."""
    return of.ball.p is not None


def _transfer(of: Examined) -> Finding:
    return transfer(of.network, of.examples, of.ball, of.surrogates, of.white, of.effort.many_steps)


def _has_surrogates(of: Examined) -> bool:
    return len(of.surrogates) > 0


def _large_radius(of: Examined) -> Finding:
    return large_radius(of.network, of.examples, of.ball, of.seed, of.effort.many_steps)


def _nothing_is_fixed(of: Examined) -> bool:
    """Where features are held fixed, no other example need lie in the ball."""
    return not of.ball.box.fixed


DIAGNOSES = (
    Diagnosis("inputs in box", _box, sanity=True),
    Diagnosis("modes", _modes, sanity=True),
    Diagnosis("probabilities", _probabilities, sanity=True),
    Diagnosis("randomness", _randomness, sanity=True),
    Diagnosis("gradients", _gradients),
    Diagnosis("rising", _rising, applies=_has_radii),
    Diagnosis("loss surface", _loss_surface, attacks=True),
    Diagnosis("more steps", _more_steps, attacks=True),
    Diagnosis("random noise", _random_noise, attacks=True),
    Diagnosis("black box", _black_box, attacks=True, applies=_square_knows_the_norm),
    Diagnosis("transfer", _transfer, attacks=True, applies=_has_surrogates),
    Diagnosis("large radius", _large_radius, attacks=True, applies=_nothing_is_fixed),
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
