"""Diagnoses of the attacks' strength: other attacks, larger balls and more steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import torch

from widemargin.data.dataset import Examples
from widemargin.measure.accuracy import BATCH_SIZE, fraction, iter_batches
from widemargin.measure.diagnostics.attacks import (
    DRAWS,
    MANY_STEPS,
    Broken,
    broken_at,
    broken_by,
    places_of,
    random_places,
)
from widemargin.measure.diagnostics.finding import Finding, graded, worst_of
from widemargin.measure.diagnostics.observe import labels_of, observed
from widemargin.perturb.balls import Ball
from widemargin.perturb.pgd import PGD
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.predictive import is_correct

# Shares of points.  The first of each pair makes a network suspicious, the second makes its numbers wrong.
_GAINED = (0.002, 0.01)
_MORE_STEPS = (0.005, 0.05)
_SURVIVED = (0.01, 0.05)
_RISEN = (0.0, 0.005)
_FEW_STEPS = 2


def rising(curve: Sequence[tuple[float, float, int]]) -> Finding:
    """Robust accuracy that rises with the radius; of each radius (radius, robust accuracy in 0..1, number of points).

    A larger ball holds the smaller one, so on the same points (taken to be the same if they are as many) any rise is a
    failure of the attack.  On different ones two standard errors are granted.
    """
    if len(curve) < 2:
        raise ValueError(f"a curve must have at least two radii, got {len(curve)}")
    ordered = sorted(curve)
    worst, at = 0.0, (ordered[0], ordered[1])
    for first, second in combinations(ordered, 2):
        (r, low, n), (s, high, m) = first, second
        granted = 0.0 if n == m else 2 * (low * (1 - low) / n + high * (1 - high) / m) ** 0.5
        if s > r and high - low - granted > worst:
            worst, at = high - low - granted, (first, second)
    verdict = graded(worst, _RISEN)
    (r, low, n), (s, high, m) = at
    return Finding(
        "rising",
        verdict,
        f"robust accuracy does not rise over {len(curve)} radii"
        if verdict == "fine"
        else f"robust accuracy rises from {low:.2%} (n = {n}) at radius {r:g} to {high:.2%} (n = {m}) at radius {s:g}",
        ""
        if verdict == "fine"
        else "attack with more steps and restarts: what broke a point in a ball breaks it in all",
        {"rise": worst},
    )


def large_radius(network: Network, examples: Examples, ball: Ball, seed: int = 0, steps: int = MANY_STEPS) -> Finding:
    """Points that survive in a ball that holds the whole box (of OPEN, all the data): it must be next to none.

    Other examples lie in that ball.  If the network does not give all of them one class, a wrong place is known to be
    there, and a point that survives shows that the attack fails.
    """
    whole = _whole(ball, examples)
    with observed(network), torch.no_grad():
        answers = torch.cat([network(inputs) for _, inputs, _ in iter_batches(examples, BATCH_SIZE)])
    right = is_correct(answers, labels_of(examples, answers))
    broken = broken_by(network, examples, PGD(whole, steps), seed)
    survived, classes = fraction(right & ~broken), len(answers.argmax(1).unique())
    verdict = graded(survived, _SURVIVED)
    if classes == 1 and verdict == "wrong":
        verdict = "suspicious"
    return Finding(
        "large radius",
        verdict,
        f"{survived:.1%} of {len(right)} points are robust in {type(ball).__name__} of radius {whole.radius:.4g}, "
        + (
            f"in which the network predicts {classes} classes"
            if classes > 1
            else "and the network gives all points one class"
        ),
        ""
        if verdict == "fine"
        else "the attack fails, not the network holds: find out why before any number is reported",
        {"share": survived, "radius": whole.radius, "classes": classes},
    )


def _whole(ball: Ball, examples: Examples) -> Ball:
    """The ball around any point that holds the box; where the box is open, all points."""
    points = torch.cat([inputs for _, inputs, _ in iter_batches(examples, BATCH_SIZE)])
    down, up = ball.box.room(points[:1])
    width = (up - down).expand_as(points[:1])
    spread = points.amax(0, keepdim=True) - points.amin(0, keepdim=True)
    radius = float(ball.norm(torch.where(width.isfinite(), width, spread)))
    return replace(ball, radius=radius)


def black_box(white: Mapping[str, Broken], black: Mapping[str, Broken]) -> Finding:
    """Points that attacks without gradients break and those with gradients leave, of masks by the attacks' names.

    Attacks in turn will do, each of what is left: of an `Attacked`, `broken_by == k` is the mask of the k-th.
    """
    return _gained("black box", white, black, "attacks without gradients")


def transfer(
    network: Network,
    examples: Examples,
    ball: Ball,
    surrogates: Sequence[Network],
    white: Broken,
    steps: int = MANY_STEPS,
) -> Finding:
    """Points that places found on other networks break, and that the white-box attack left."""
    if not surrogates:
        raise ValueError("transfer needs at least one surrogate network, got none")
    black = {
        f"surrogate {number}": broken_at(network, examples, places_of(surrogate, examples, PGD(ball, steps)))
        for number, surrogate in enumerate(surrogates)
    }
    return _gained("transfer", {"white box": white}, black, "adversarial examples of other networks")


def stood_in(white: Broken, black: Broken, kind: str, agreement: float) -> Finding:
    """Points that all other attacks left, and that places break that were computed on a surrogate of the network."""
    finding = _gained("transfer", {"all other attacks": white}, {kind: black}, "adversarial examples of a surrogate")
    return replace(
        finding,
        evidence=f"{finding.evidence}; it agrees with the network on {agreement:.1%} of the points",
        numbers={**finding.numbers, "agreement": agreement},
    )


def random_noise(
    network: Network, examples: Examples, ball: Ball, white: Broken, seed: int = 0, draws: int = DRAWS
) -> Finding:
    """Random points in the ball and at its corners, against a few gradient steps and against the white-box attack."""
    drawn = torch.zeros_like(white)
    for draw in range(draws):
        drawn |= broken_at(network, examples, random_places(examples, ball, seed, draw))
    few = broken_by(network, examples, PGD(ball, _FEW_STEPS), seed)
    noise, by_few, only = fraction(drawn), fraction(few), fraction(drawn & ~white)
    verdict = worst_of(graded(only, (0.0, _GAINED[1])), "suspicious" if int(drawn.sum()) > int(few.sum()) else "fine")
    return Finding(
        "random noise",
        verdict,
        f"{draws} random perturbations break {noise:.1%} of {len(white)} points and {_FEW_STEPS} gradient steps "
        f"{by_few:.1%}; noise alone breaks {only:.1%}, which the white-box attack did not",
        "" if verdict == "fine" else "the gradients mislead: attack without them (Square) and count the worst of all",
        {"share_noise": noise, "share_few_steps": by_few, "share_noise_only": only},
    )


def more_steps(few: Broken, many: Broken) -> Finding:
    """Points that ten times the steps break in addition."""
    gained = fraction(many & ~few)
    # One point may lie just at the edge of what is within reach.
    verdict = graded(gained, _MORE_STEPS) if int((many & ~few).sum()) > 1 else "fine"
    return Finding(
        "more steps",
        verdict,
        f"ten times the steps break {gained:.1%} of {len(few)} points more ({fraction(few):.1%} before)",
        "" if verdict == "fine" else "the attack has not converged: go on with more steps until nothing is gained",
        {"gain": gained, "share_few": fraction(few)},
    )


def _gained(name: str, white: Mapping[str, Broken], black: Mapping[str, Broken], what: str) -> Finding:
    if not white or not black:
        raise ValueError(f"{name} compares at least one attack of each kind, got {len(white)} and {len(black)}")
    left = ~torch.stack(list(white.values())).any(0)
    gains = {of: fraction(broken & left) for of, broken in black.items()}
    gain = fraction(torch.stack(list(black.values())).any(0) & left)
    verdict = graded(gain, _GAINED)
    # One point of a few may be bad luck.
    if round(gain * len(left)) == 1 and verdict == "wrong":
        verdict = "suspicious"
    said = ", ".join(f"{of} {value:.2%}" for of, value in gains.items())
    return Finding(
        name,
        verdict,
        f"{what} break {gain:.2%} of {len(left)} points that {' and '.join(white)} did not ({said})",
        "" if verdict == "fine" else "gradients are masked: report the worst over all attacks, point by point",
        {"gain": gain, **gains},
    )
