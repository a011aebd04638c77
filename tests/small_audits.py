"""Audits that take seconds."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from widemargin.auditing.clock import UNLIMITED, Clock
from widemargin.auditing.config import AuditConfig
from widemargin.auditing.pace import OnProgress
from widemargin.auditing.result import Adversarial, Audit
from widemargin.auditing.runner import audit
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Dataset, Origin
from widemargin.measure.diagnostics import DIAGNOSES, Diagnosis
from widemargin.perturb.apgd import APGD, TargetedAPGD
from widemargin.perturb.attack import Attack
from widemargin.perturb.balls import L2, OPEN, Ball, Box, Linf, Norm
from widemargin.perturb.fmn import FMN
from widemargin.perturb.objectives import margin_loss
from widemargin.perturb.square import Square
from widemargin.perturb.suites import Suite
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single


@dataclass(frozen=True)
class Quick:
    """The standard's attacks with fewer steps: what they find is tested elsewhere."""

    def __call__(self, ball: Ball, classes: int, rows_at_once: int = 0) -> tuple[Attack, ...]:
        second = TargetedAPGD(ball, targets=classes - 1, steps=10) if classes > 3 else APGD(ball, margin_loss, steps=10)
        return (APGD(ball, steps=20), second, Square(ball, queries=10))


@dataclass(frozen=True)
class Weak:
    """Next to nothing."""

    def __call__(self, ball: Ball, classes: int, rows_at_once: int = 0) -> tuple[Attack, ...]:
        return (APGD(ball, steps=2), Square(ball, queries=1))


@dataclass(frozen=True)
class OnlyFMN:
    def __call__(
        self, norm: Norm, box: Box, classes: int, rows_at_once: int = 0, starts: int = 1
    ) -> tuple[Attack, ...]:
        return (FMN(norm, box, steps=60, targets=min(3, classes - 1)),)


def named(*names: str) -> tuple[Diagnosis, ...]:
    return tuple(one for one in DIAGNOSES if one.name in names)


BALLS = tuple(L2(radius, OPEN) for radius in (0.2, 0.5, 1.0))


def config(
    balls: tuple[Ball, ...] = BALLS,
    points: int = 1_000,
    seed: int = 0,
    chunk: int = 100,
    standard: Suite = Quick(),  # noqa: B008
    diagnoses: tuple[Diagnosis, ...] = named("modes"),
) -> AuditConfig:
    return AuditConfig(balls, points, seed, chunk, standard, OnlyFMN(), diagnoses, surrogate_updates=100)


CONFIG = config(points=24, seed=3, chunk=6)


def target(classes: int = 4) -> AuditTarget:
    """A linear classifier, whose margins are known, with one point in ten labelled wrong."""
    draws = torch.Generator().manual_seed(0)
    linear = nn.Linear(5, classes)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(classes, 5, generator=draws))
        linear.bias.zero_()
    points = torch.randn(60, 5, generator=draws)
    labels = linear(points).argmax(1)
    labels[::10] = (labels[::10] + 1) % classes
    examples = Dataset(points, labels, tuple("abcd"[:classes]), Origin("memory", "digest"))
    return AuditTarget(Single(at_input(linear)), "linear", "weights", examples, "points")


def audited(folder: Path, clock: Clock = UNLIMITED, on_progress: OnProgress = lambda done, of: None) -> Audit:
    result = audit(target(), CONFIG, folder, clock, on_progress)
    assert result is not None
    return result


def ten_points(**other: object) -> Audit:
    """Of ten points two are misclassified, and three, two and three are broken first by one attack each."""
    points = {
        "row": np.arange(10),
        "label": np.zeros(10, dtype=int),
        "answer": np.array([1, 1, *[0] * 8]),
        "breaks": np.array([0, 0, 0, 0, 0, 1, 1, 2, 2, 2]),
        "by": np.array([-1, -1, 1, 1, 1, 0, 0, -1, -1, -1]),
        "margin": np.array([0, 0, 0.05, 0.05, 0.05, 0.15, 0.15, 0.3, 0.3, 0.3]),
        "certified": np.array([0, 0, 0, 0, 0, 0.1, 0.1, 0.15, 0.2, 0.2]),
    }
    found = Audit(
        name="<net>",
        data="digits",
        classes=("a", "b"),
        config=AuditConfig((Linf(0.1), Linf(0.2)), 10),
        attacks=("apgd-ce", "minimum-norm"),
        points=points,
        findings=(),
        asked=10,
        draws=None,
        notes=(),
        seconds=1.0,
    )
    return replace(found, **other)  # type: ignore[arg-type]


def unbroken(margins: list[float]) -> Audit:
    margin = np.array(margins)
    points = {
        **ten_points().points,
        "answer": np.where(margin == 0, 1, 0),
        "breaks": np.where(margin == 0, 0, 2),
        "by": np.full(10, -1),
        "margin": margin,
        "certified": np.full(10, np.nan),
    }
    return ten_points(points=points)


def images(count: int) -> Adversarial:
    rng = np.random.default_rng(0)
    before, after = rng.uniform(size=(2, count, 1, 4, 4))
    numbers = np.arange(count)
    zeros = np.zeros(count, dtype=int)
    return Adversarial("linf", numbers, before, after, zeros, zeros, zeros + 1, 1.0 - numbers / 100, numbers + 0.0)
