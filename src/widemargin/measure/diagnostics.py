"""Is this robustness real?  Each diagnosis looks for one way in which attacks fail, and answers with evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from widemargin.data.examples import Examples, row_numbers
from widemargin.measure.accuracy import ROWS_AT_ONCE, named_right, share, slices
from widemargin.measure.attacks.attack import Attack, Classifier, Noise
from widemargin.measure.attacks.losses import CrossEntropy, Loss, Margin, likeliest_others, towards
from widemargin.measure.attacks.square import Square
from widemargin.measure.autoattack import under_attack
from widemargin.measure.distance import check_alone
from widemargin.perturb.balls import Ball
from widemargin.rng import Rng
from widemargin.shapes import Encoded, Labels, LogProbs, MemberLogits, PerSample, Points
from widemargin.uncertainty.network import Network, in_eval_mode

Verdict = Literal["fine", "suspicious", "wrong"]
Broken = Bool[Tensor, " B"]
"""Which points are right where they are and wrong where an attack took them."""

# Shares of points.  The first of each pair makes a network suspicious, the second makes its numbers wrong.
_FLAT = (0.01, 0.1)
_GAINED = (0.002, 0.01)
_MORE_STEPS = (0.005, 0.05)
_SURVIVED = (0.01, 0.05)
_RISEN = (0.0, 0.005)
# Where a straight line would meet the boundary: so many diameters of the data away, it does not lead there.
_DIAMETERS = 100
# Two passes on the same numbers may differ by rounding on some devices.
_ROUNDING = 1e-5
_LEAST_SHARE_OF_BOX = 0.1
_FEW_STEPS, _STEPS, _MANY_STEPS = 2, 10, 100
_TARGETS = 9
_DRAWS = 20
_QUERIES = 300
_LENGTHS = (1.0, 0.25, 0.05)


@dataclass(frozen=True)
class Finding:
    """What one diagnosis saw; `numbers` are those of the evidence, shares in 0..1."""

    name: str
    verdict: Verdict
    evidence: str
    advice: str
    """What to do; empty if all is fine."""
    numbers: Mapping[str, float]


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
    anything there.  `curve` is as for `rising`; without it or without surrogates, those diagnoses are left out.
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
    if curve:
        yield rising(curve)
    if box.verdict == "wrong":
        return
    yield loss_surface(network, examples, ball)
    few = broken_by(network, examples, PGD(ball, _STEPS), seed)
    many = few | broken_by(network, examples, PGD(ball, _MANY_STEPS), seed)
    yield more_steps(few, many)
    white = many | broken_by(network, examples, PGD(ball, _MANY_STEPS, _TARGETS), seed)
    yield random_noise(network, examples, ball, white, seed)
    square = broken_by(network, examples, Square(ball, _QUERIES), seed)
    yield black_box({"pgd": white}, {"square": square})
    if surrogates:
        yield transfer(network, examples, ball, surrogates, white)
    yield large_radius(network, examples, ball, seed)


def probabilities(network: Network, examples: Examples) -> Finding:
    """Rows that are shares of 1: their softmax is nearly uniform, so every loss is nearly flat.

    Log-probabilities are valid logits.
    """
    with _observed(network), torch.no_grad():
        raw = torch.cat([_raw(network, inputs) for _, inputs, _ in slices(examples, ROWS_AT_ONCE)], 1)
    near = max(1e-4, 4 * raw.shape[-1] * torch.finfo(raw.dtype).eps)
    shares = ((raw >= 0) & (raw <= 1)).all(-1) & ((raw.sum(-1) - 1).abs() < near)
    logs = bool(((raw <= near) & (raw.logsumexp(-1, keepdim=True).abs() < near)).all())
    worst = float(shares.double().mean(1).max())
    kind = "log-probabilities, which are valid logits" if logs else "logits"
    return Finding(
        "probabilities",
        _graded(worst, _FLAT),
        f"of the member that does so most, {worst:.1%} of {raw.shape[1]} answers are shares of 1"
        if worst
        else f"all {raw.shape[1]} answers are {kind}, from {float(raw.min()):.4g} to {float(raw.max()):.4g}",
        "remove the network's softmax: it must answer with logits" if worst > _FLAT[0] else "",
        {"share": worst, "lowest": float(raw.min()), "highest": float(raw.max())},
    )


def randomness(network: Network, examples: Examples) -> Finding:
    """Two passes in eval mode, of the members and of their mean."""
    with _observed(network), torch.no_grad():
        differences, changed = [], []
        for _, inputs, _ in slices(examples, ROWS_AT_ONCE):
            first, second = _raw(network, inputs), _raw(network, inputs)
            scale = first.abs().amax((0, 2)).clamp_min(torch.finfo(first.dtype).tiny)
            differences.append((first - second).abs().amax((0, 2)) / scale)
            changed.append(network(inputs).argmax(-1) != network(inputs).argmax(-1))
    difference, moved = torch.cat(differences), share(torch.cat(changed))
    largest, touched = float(difference.max()), share(~(difference <= _ROUNDING))
    verdict: Verdict = "wrong" if moved else "suspicious" if touched else "fine"
    return Finding(
        "randomness",
        verdict,
        f"between two passes the answers differ on {touched:.1%} of {len(difference)} points, by up to {largest:.3g} "
        f"of their size, and the class changes on {moved:.1%}",
        ""
        if verdict == "fine"
        else "judge it by the mean over many fixed draws (MCDropout has them), and attack that mean",
        {"share": touched, "share_class_changes": moved, "largest": largest},
    )


def modes(network: Network, examples: Examples) -> Finding:
    """Layers that would behave otherwise in eval mode, as the network was handed over.

    Everything here is measured in eval mode all the same; whoever else measures it may not see to that.
    """
    active = [name for name, module in network.named_modules() if _active(module)]
    always = [name for name, module in network.named_modules() if _without_statistics(module)]
    inputs, _ = examples.batch(torch.arange(min(len(examples), ROWS_AT_ONCE)))
    difference = 0.0
    # Batch-norm in train mode refuses a single point.
    if (network.training or active) and len(inputs) > 1:
        with _state_kept(network), torch.no_grad():
            handed_over = network(inputs).exp()
            with in_eval_mode(network):
                difference = float((handed_over - network(inputs).exp()).abs().max())
    changes = difference > _ROUNDING
    verdict: Verdict = "wrong" if always or changes else "suspicious" if active else "fine"
    said = [f"in train mode: {', '.join(active)}"] if active else ["no dropout or batch-norm is in train mode"]
    said += [f"batch-norm without running statistics, whose answer depends on the batch: {', '.join(always)}"] * (
        len(always) > 0
    )
    said.append(f"probabilities differ from those in eval mode by up to {difference:.3g}")
    return Finding(
        "modes",
        verdict,
        "; ".join(said),
        "" if verdict == "fine" else "call network.eval() first, and give batch-norm running statistics",
        {"layers": len(active), "without_statistics": len(always), "largest": difference},
    )


def inputs_in_box(examples: Examples, ball: Ball) -> Finding:
    """Points outside the box, or a box of which they use a small part only: pixels in 0..255 and in 0..1 mixed up."""
    points = torch.cat([inputs for _, inputs, _ in slices(examples, ROWS_AT_ONCE)])
    down, up = ball.box.room(points)
    width = (up - down).expand_as(points)
    outside = share(~((down <= 1e-6) & (up >= -1e-6) & points.isfinite()).flatten(1).all(1))
    low, high = float(points.min()), float(points.max())
    used = float("nan")
    if bool(width.isfinite().all()):
        at = -down / width
        # One interval for all features is used by all of them together; of many, each by its own feature.
        together = not isinstance(ball.box.low, tuple) and not isinstance(ball.box.high, tuple)
        used = float(at.max() - at.min()) if together else float((at.amax(0) - at.amin(0)).max())
    narrow = used < _LEAST_SHARE_OF_BOX
    verdict: Verdict = "wrong" if outside else "suspicious" if narrow else "fine"
    evidence = (
        f"values from {low:.4g} to {high:.4g}, {outside:.1%} of {len(points)} points outside the box {ball.box!r}"
    )
    return Finding(
        "inputs in box",
        verdict,
        evidence + (f", of which they use {used:.1%}" if used == used else ""),
        "" if verdict == "fine" else "rescale the points to the box, or give the ball the box of valid inputs",
        {"share_outside": outside, "lowest": low, "highest": high, "share_used": used},
    )


def gradients(network: Network, examples: Examples) -> Finding:
    """Points at which no gradient leads anywhere.

    The margin of the logits has none (exactly 0, of the mean's answer or of a member's), or one so small that a
    straight line would meet the boundary a hundred diameters of the data away: the network is flat there.  Or the
    margin has one but cross-entropy's is less than a rounding error of it: 1 - p cannot be told from 0, softmax is
    saturated, and attacks on cross-entropy go wrong while those on the margin do not.
    """
    points = torch.cat([inputs for _, inputs, _ in slices(examples, ROWS_AT_ONCE)])
    diameter = float((points.amax(0) - points.amin(0)).norm())
    rows = []
    with _observed(network):
        for _, inputs, labels in slices(examples, ROWS_AT_ONCE):
            height, slope = _slope(network, inputs, labels, Margin())
            steepness, of_ce = _length(slope), _length(_slope(network, inputs, labels, CrossEntropy())[1])
            flat = ~(height.abs() <= _DIAMETERS * max(diameter, 1e-30) * steepness)
            saturated = (steepness > 0) & (of_ce < torch.finfo(inputs.dtype).eps * steepness)
            members = [
                _length(_slope(_Member(network, m), inputs, labels, Margin())[1]) for m in _members(network, inputs)
            ]
            of_member = (torch.stack(members) == 0).any(0)
            rows.append(torch.stack([steepness == 0, of_ce == 0, flat, saturated, of_member]))
    none, none_ce, flat_share, saturated_share, member = (share(row) for row in torch.cat(rows, 1).unbind())
    worst: Verdict = _worst(_graded(max(flat_share, member), _FLAT), _graded(saturated_share, (_FLAT[0], 0.5)))
    advice = ""
    if worst != "fine":
        advice = (
            "the network hides its gradients: attack without them (Square), by transfer, or through a smooth stand-in"
            if max(flat_share, member) > _FLAT[0]
            else "cross-entropy is saturated: attack the margin or DLR, or compute in float64"
        )
    return Finding(
        "gradients",
        worst,
        f"the margin's gradient is exactly 0 on {none:.1%} of {len(points)} points (a member's on {member:.1%}) and "
        f"next to 0 on {flat_share:.1%}; cross-entropy's is exactly 0 on {none_ce:.1%} and lost in rounding beside the "
        f"margin's on {saturated_share:.1%}",
        advice,
        {
            "share_zero_margin": none,
            "share_zero_member": member,
            "share_flat_margin": flat_share,
            "share_zero_cross_entropy": none_ce,
            "share_saturated": saturated_share,
        },
    )


def loss_surface(network: Network, examples: Examples, ball: Ball) -> Finding:
    """Points whose loss does not rise along its own gradient, whatever the length of the step (1, 1/4 or 1/20 radius).

    Training on uncertain points can flatten the loss around the data; so can saturation, which spares the margin.
    """
    rows, sure = [], []
    with _observed(network):
        for _, inputs, labels in slices(examples, ROWS_AT_ONCE):
            rows.append(
                torch.stack([_stuck(network, inputs, labels, ball, loss) for loss in (CrossEntropy(), Margin())])
            )
            with torch.no_grad():
                sure.append(network(inputs).amax(1).exp())
    stuck_ce, stuck_margin = (share(row) for row in torch.cat(rows, 1).unbind())
    confidence = float(torch.cat(sure).double().mean())
    # Where only cross-entropy is stuck, attacks on the margin still work.
    verdict = _worst(_graded(stuck_margin, _FLAT), "suspicious" if stuck_ce > _FLAT[1] else "fine")
    return Finding(
        "loss surface",
        verdict,
        f"along its own gradient cross-entropy does not rise on {stuck_ce:.1%} of {len(examples)} points and the "
        f"margin's loss not on {stuck_margin:.1%}; the mean confidence is {confidence:.4f}",
        ""
        if verdict == "fine"
        else "do not trust gradients alone: attack the margin from many starts, and with Square",
        {"share": stuck_ce, "share_margin": stuck_margin, "confidence": confidence},
    )


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
    verdict = _graded(worst, _RISEN)
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


def large_radius(network: Network, examples: Examples, ball: Ball, seed: int = 0) -> Finding:
    """Points that survive in a ball that holds the whole box (of OPEN, all the data): it must be next to none.

    Other examples lie in that ball.  If the network does not give all of them one class, a wrong place is known to be
    there, and whoever survives shows that the attack fails.
    """
    whole = _whole(ball, examples)
    with _observed(network), torch.no_grad():
        answers = torch.cat([network(inputs) for _, inputs, _ in slices(examples, ROWS_AT_ONCE)])
    right = named_right(answers, _labels(examples, answers))
    broken = broken_by(network, examples, PGD(whole, _MANY_STEPS), seed)
    survived, classes = share(right & ~broken), len(answers.argmax(1).unique())
    verdict = _graded(survived, _SURVIVED)
    if classes == 1 and verdict == "wrong":
        verdict = "suspicious"
    return Finding(
        "large radius",
        verdict,
        f"{survived:.1%} of {len(right)} points stay right in {type(ball).__name__} of radius {whole.radius:.4g}, "
        + (
            f"though {classes} classes are found there" if classes > 1 else "and the network gives all points one class"
        ),
        ""
        if verdict == "fine"
        else "the attack fails, not the network holds: find out why before any number is reported",
        {"share": survived, "radius": whole.radius, "classes": classes},
    )


def black_box(white: Mapping[str, Broken], black: Mapping[str, Broken]) -> Finding:
    """Points that attacks without gradients break and those with gradients leave, of masks by the attacks' names.

    Attacks in turn will do, each of what is left: of an `Attacked`, `broken_by == k` is the mask of the k-th.
    """
    return _gained("black box", white, black, "attacks without gradients")


def transfer(network: Network, examples: Examples, ball: Ball, surrogates: Sequence[Network], white: Broken) -> Finding:
    """Points that places found on other networks break, and that the white-box attack left."""
    if not surrogates:
        raise ValueError("transfer needs at least one surrogate network, got none")
    black = {
        f"surrogate {number}": _broken_at(network, examples, _places(surrogate, examples, PGD(ball, _MANY_STEPS)))
        for number, surrogate in enumerate(surrogates)
    }
    return _gained("transfer", {"white box": white}, black, "places found on other networks")


def stood_in(white: Broken, black: Broken, kind: str, agreement: float) -> Finding:
    """Points that all other attacks left, and that places break which were found on a stand-in for the network."""
    found = _gained("transfer", {"all other attacks": white}, {kind: black}, "places found on a stand-in")
    return replace(
        found,
        evidence=f"{found.evidence}; it gives the network's class to {agreement:.1%} of the points",
        numbers={**found.numbers, "agreement": agreement},
    )


def random_noise(network: Network, examples: Examples, ball: Ball, white: Broken, seed: int = 0) -> Finding:
    """Random points in the ball and at its corners, against a few gradient steps and against the white-box attack."""
    drawn = torch.zeros_like(white)
    for draw in range(_DRAWS):
        drawn |= _broken_at(network, examples, _random_places(examples, ball, seed, draw))
    few = broken_by(network, examples, PGD(ball, _FEW_STEPS), seed)
    noise, steps, only = share(drawn), share(few), share(drawn & ~white)
    verdict = _worst(_graded(only, (0.0, _GAINED[1])), "suspicious" if int(drawn.sum()) > int(few.sum()) else "fine")
    return Finding(
        "random noise",
        verdict,
        f"{_DRAWS} random places break {noise:.1%} of {len(white)} points and {_FEW_STEPS} gradient steps "
        f"{steps:.1%}; the white-box attack left {only:.1%} that noise breaks",
        "" if verdict == "fine" else "the gradients mislead: attack without them (Square) and count the worst of all",
        {"share_noise": noise, "share_few_steps": steps, "share_noise_only": only},
    )


def more_steps(few: Broken, many: Broken) -> Finding:
    """Points that ten times the steps break in addition."""
    gained = share(many & ~few)
    verdict = _graded(gained, _MORE_STEPS)
    return Finding(
        "more steps",
        verdict,
        f"ten times the steps break {gained:.1%} of {len(few)} points more ({share(few):.1%} before)",
        "" if verdict == "fine" else "the attack has not converged: go on with more steps until nothing is gained",
        {"gain": gained, "share_few": share(few)},
    )


@dataclass(frozen=True)
class PGD:
    """Steepest steps on the margin of the logits from the clean point, 2.5 radii in all: nothing random helps it.

    With `targets`, towards each of so many of the likeliest other classes in turn instead of the best at each step.
    """

    ball: Ball
    steps: int
    targets: int = 0

    @property
    def name(self) -> str:
        return f"pgd-{self.steps}" + (f" ({self.targets} targets)" if self.targets else "")

    def __call__(self, classify: Classifier, inputs: Points, labels: Labels, noise: Noise) -> Points:
        if self.targets == 0:
            return self._climbed(classify, inputs, labels, Margin())
        with torch.no_grad():
            answers = classify(inputs)
        found, left = inputs.clone(), named_right(answers, labels)
        for targets in likeliest_others(answers, labels, min(self.targets, answers.shape[1] - 1)).unbind(1):
            rows = left.nonzero()[:, 0]
            if len(rows) == 0:
                break
            found[rows] = self._climbed(classify, inputs[rows], labels[rows], _Towards(targets[rows]))
            with torch.no_grad():
                left[rows] = named_right(classify(found[rows]), labels[rows])
        return found

    def _climbed(self, classify: Classifier, inputs: Points, labels: Labels, loss: Loss) -> Points:
        best, place = torch.full((len(inputs),), -torch.inf, device=inputs.device), inputs
        found = inputs.clone()
        for step in range(self.steps + 1):
            height, slope = _slope(classify, place, labels, loss)
            # An answer that is not a number is wrong, so no place is better.
            better = (height := height.nan_to_num(torch.inf)) > best
            found[better], best = place[better], torch.maximum(best, height.to(best))
            if step < self.steps:
                place = _stepped(self.ball, inputs, place, slope, 2.5 * self.ball.radius / self.steps)
        return found


@dataclass(frozen=True, eq=False)
class _Towards:
    targets: Labels
    name = "towards"

    def __call__(self, logits: LogProbs, labels: Labels) -> PerSample:
        return towards(logits, labels, self.targets)


def broken_by(network: Network, examples: Examples, attack: Attack, seed: int = 0) -> Broken:
    """Which points the attack breaks; those that were wrong before do not count."""
    return _broken_at(network, examples, _places(network, examples, attack, seed))


def _places(network: Network, examples: Examples, attack: Attack, seed: int = 0) -> Iterator[Points]:
    with _observed(network):
        made = [
            attack(network, inputs, labels, Noise(seed, row_numbers(examples, rows).to(inputs.device))).detach()
            for rows, inputs, labels in slices(examples, ROWS_AT_ONCE)
        ]
    return iter(made)


def _broken_at(network: Network, examples: Examples, places: Iterator[Points]) -> Broken:
    with _observed(network), torch.no_grad():
        return torch.cat(
            [
                named_right(network(inputs), labels) & ~named_right(network(next(places)), labels)
                for _, inputs, labels in slices(examples, ROWS_AT_ONCE)
            ]
        )


def _random_places(examples: Examples, ball: Ball, seed: int, draw: int) -> Iterator[Points]:
    for rows, inputs, _ in slices(examples, ROWS_AT_ONCE):
        rng = Rng.seeded(*row_numbers(examples, rows).tolist(), purpose=f"noise {seed} {draw}", device=inputs.device)
        # Uniform and at corners in turn.
        corner = ball.radius * ball.steepest(rng.normal(inputs))
        delta = ball.project(corner, inputs) if draw % 2 else ball.sample(inputs, rng)
        yield inputs + delta


def _whole(ball: Ball, examples: Examples) -> Ball:
    """The ball around any point that holds the box; where the box is open, all points."""
    points = torch.cat([inputs for _, inputs, _ in slices(examples, ROWS_AT_ONCE)])
    down, up = ball.box.room(points[:1])
    width = (up - down).expand_as(points[:1])
    spread = points.amax(0, keepdim=True) - points.amin(0, keepdim=True)
    radius = float(ball.norm(torch.where(width.isfinite(), width, spread)))
    return replace(ball, radius=radius)  # type: ignore[type-var]


def _stuck(network: Network, inputs: Points, labels: Labels, ball: Ball, loss: Loss) -> Tensor:
    here, slope = _slope(network, inputs, labels, loss)
    stuck = torch.ones_like(labels, dtype=torch.bool)
    with torch.no_grad():
        for length in _LENGTHS:
            there = _stepped(ball, inputs, inputs, slope, length * ball.radius)
            stuck &= ~(loss(network(there), labels) > here)
    return stuck


def _stepped(ball: Ball, inputs: Points, place: Points, slope: Encoded, length: float) -> Points:
    step = length * ball.steepest(ball.box.inward(slope, place))
    return inputs + ball.project(place + step - inputs, inputs)


def _slope(classify: Classifier, points: Points, labels: Labels, loss: Loss) -> tuple[PerSample, Encoded]:
    """The loss and its gradient: 0 where there is none, also if the network cut it off."""
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        height = loss(classify(points), labels)
        slope = None
        if height.requires_grad:
            (slope,) = torch.autograd.grad(height.sum(), points, allow_unused=True)
    return height.detach(), torch.zeros_like(points) if slope is None else slope.nan_to_num(0.0, 0.0, 0.0)


def _length(slope: Encoded) -> PerSample:
    # In double precision, so that the square of a tiny gradient does not underflow.
    return torch.linalg.vector_norm(slope.double().flatten(1), dim=1)  # type: ignore[no-any-return]


def _raw(network: Network, inputs: Points) -> MemberLogits:
    return network.logits(network.encode(inputs))


@dataclass(frozen=True)
class _Member:
    """One member's raw answer."""

    network: Network
    number: int

    def __call__(self, inputs: Points) -> LogProbs:
        return _raw(self.network, inputs)[self.number]


def _gained(name: str, white: Mapping[str, Broken], black: Mapping[str, Broken], what: str) -> Finding:
    if not white or not black:
        raise ValueError(f"{name} compares at least one attack of each kind, got {len(white)} and {len(black)}")
    left = ~torch.stack(list(white.values())).any(0)
    gains = {of: share(broken & left) for of, broken in black.items()}
    gain = share(torch.stack(list(black.values())).any(0) & left)
    verdict = _graded(gain, _GAINED)
    # One point of a few may be bad luck.
    if round(gain * len(left)) == 1 and verdict == "wrong":
        verdict = "suspicious"
    said = ", ".join(f"{of} {value:.2%}" for of, value in gains.items())
    return Finding(
        name,
        verdict,
        f"{what} break {gain:.2%} of {len(left)} points that {' and '.join(white)} left ({said})",
        "" if verdict == "fine" else "gradients are masked: report the worst over all attacks, point by point",
        {"gain": gain, **gains},
    )


def _graded(value: float, limits: tuple[float, float]) -> Verdict:
    return "wrong" if value > limits[1] else "suspicious" if value > limits[0] else "fine"


def _worst(*verdicts: Verdict) -> Verdict:
    order: tuple[Verdict, ...] = ("fine", "suspicious", "wrong")
    return max(verdicts, key=order.index)


def _active(module: nn.Module) -> bool:
    if isinstance(module, _DropoutNd):
        return module.training and module.p > 0
    return isinstance(module, _NormBase) and module.training and (_is_batch_norm(module) or module.track_running_stats)


def _without_statistics(module: nn.Module) -> bool:
    return isinstance(module, _NormBase) and _is_batch_norm(module) and module.running_mean is None


def _is_batch_norm(module: nn.Module) -> bool:
    # An instance norm without running statistics looks at one point at a time in either mode.
    return isinstance(module, nn.modules.batchnorm._BatchNorm)


def _members(network: Network, inputs: Points) -> range:
    with torch.no_grad():
        return range(len(_raw(network, inputs[:1])))


def _labels(examples: Examples, like: Tensor) -> Tensor:
    return torch.cat([labels for _, _, labels in slices(examples, ROWS_AT_ONCE)]).to(like.device)


@contextmanager
def _observed(network: nn.Module) -> Iterator[None]:
    """As under attack, and everything is as before afterwards."""
    with _state_kept(network), under_attack(network):
        yield


@contextmanager
def _state_kept(network: nn.Module) -> Iterator[None]:
    """Buffers and torch's global generator: a pass in train mode, or of a network that draws, would move them."""
    kept = [(buffer, buffer.clone()) for buffer in network.buffers()]
    with torch.random.fork_rng():
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in kept:
                    buffer.copy_(before)
