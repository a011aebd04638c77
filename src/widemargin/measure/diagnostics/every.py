"""Which diagnoses apply?  All of them, the cheap ones first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from widemargin.data.examples import Examples
from widemargin.measure.attacks.square import Square
from widemargin.measure.diagnostics.climbing import MANY_STEPS, PGD, broken_by
from widemargin.measure.diagnostics.finding import Finding
from widemargin.measure.diagnostics.handed_over import inputs_in_box, modes, probabilities, randomness
from widemargin.measure.diagnostics.slopes import gradients, loss_surface
from widemargin.measure.diagnostics.strength import black_box, large_radius, more_steps, random_noise, rising, transfer
from widemargin.measure.distance import check_alone
from widemargin.perturb.balls import Ball
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
    are left out.
    """
    found = []
    for finding in _findings(network, examples, ball, curve, surrogates, seed):
        found.append(finding)
        if tick is not None:
            tick(finding)
    return tuple(found)


def _findings(
    network: Network,
    examples: Examples,
    ball: Ball,
    curve: Sequence[tuple[float, float, int]],
    surrogates: Sequence[Network],
    seed: int,
) -> Iterator[Finding]:
    check_alone(network)
    box = inputs_in_box(examples, ball)
    yield box
    yield modes(network, examples)
    yield probabilities(network, examples)
    yield randomness(network, examples)
    yield gradients(network, examples)
    if len(curve) > 1:
        yield rising(curve)
    if box.verdict == "wrong":
        return
    yield loss_surface(network, examples, ball)
    few = broken_by(network, examples, PGD(ball, _STEPS), seed)
    many = few | broken_by(network, examples, PGD(ball, MANY_STEPS), seed)
    yield more_steps(few, many)
    white = many | broken_by(network, examples, PGD(ball, MANY_STEPS, _TARGETS), seed)
    yield random_noise(network, examples, ball, white, seed)
    square = broken_by(network, examples, Square(ball, _QUERIES), seed)
    yield black_box({"pgd": white}, {"square": square})
    if surrogates:
        yield transfer(network, examples, ball, surrogates, white)
    yield large_radius(network, examples, ball, seed)
