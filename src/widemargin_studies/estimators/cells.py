"""Which estimators climb which measures on which data?  The cells of the cross, and what is left out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from widemargin.data.images import ImageSet
from widemargin.data.toy import PointSet
from widemargin.measure.calibration import UNCERTAINTIES
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.named import LeNetSpec
from widemargin.perturb.balls import OPEN, Ball, Linf
from widemargin.perturb.objectives import CLIMBED
from widemargin.recipes import udp
from widemargin.runs.run import Run
from widemargin.training.plan import Adam, Cosine, Plan, Updates
from widemargin.uncertainty.dropout import LastDropout
from widemargin.uncertainty.estimators import DeepKernelSpec, EnsembleSpec, Estimator, MCDropoutSpec, SingleSpec
from widemargin_studies import fig3, plane

CORRIDOR, SLABS, DIGITS = fig3.CORRIDOR, fig3.SLABS, ImageSet("digits")
PLANE: tuple[PointSet, ...] = (CORRIDOR, SLABS)
MEMBERS = 5
DROPOUT = 0.1

ENTROPY, INFORMATION, EXPECTED, VARIATION, GAP = UNCERTAINTIES

SINGLE, LAPLACE = "single", "Laplace"
_LAST = LastDropout()


@dataclass(frozen=True)
class Kind:
    """Who the members are, and what the network needs for it."""

    members: Estimator
    dropout: float = 0.0
    climbs: tuple[str, ...] = tuple(CLIMBED)


KINDS: Mapping[str, Kind] = {
    SINGLE: Kind(SingleSpec()),
    "ensemble": Kind(EnsembleSpec(MEMBERS)),
    "dropout": Kind(MCDropoutSpec(MEMBERS), DROPOUT),
    "last-layer dropout": Kind(MCDropoutSpec(MEMBERS, over=_LAST), DROPOUT),
    "deep kernel": Kind(DeepKernelSpec(draws=MEMBERS)),
}

Data = PointSet | ImageSet
Row = tuple[str, str]
"""An estimator and the measure that UDP climbed."""
REFERENCE: Row = (SINGLE, ENTROPY)


def fitted(row: Row) -> Row:
    """Laplace is fitted to a single network after its training: what UDP climbed, it climbed without it."""
    return (LAPLACE, row[1])


@dataclass(frozen=True)
class Setting:
    """What is trained on a data set, and how far UDP goes there."""

    ball: Ball
    alpha: float
    steps: int
    plan: Plan
    seeds: tuple[int, ...]


def setting_of(data: Data, updates: int, seeds: tuple[int, ...]) -> Setting:
    """Fewer updates at twice the rate of Fig. 3 and the demonstration, and shorter searches: chosen by seed 7."""
    if isinstance(data, ImageSet):
        return Setting(Linf(0.2), 0.07, 3, Plan(Updates(updates), Adam(4e-3, Cosine()), batch=32), seeds)
    plan = replace(fig3.PLANS[data], length=Updates(updates), descent=Adam(1e-2, Cosine()))
    return Setting(Linf(0.5, OPEN), 0.05, 5, plan, seeds)


def data_title(data: Data) -> str:
    return "Digits" if isinstance(data, ImageSet) else fig3.TITLES[data]


def same_as(kind: str, measure: str, data: Data) -> str | None:
    """Why this cell is another one, if it is.

    One member has no mutual information, and its expected entropy is its entropy.  Of two classes, entropy, variation
    ratio and gap rise and fall together, so their gradients have the same signs, which are the steps of an l-infinity
    search.
    """
    if kind in (SINGLE, LAPLACE) and measure == INFORMATION:
        return "none"
    if kind in (SINGLE, LAPLACE) and measure == EXPECTED:
        return "as entropy"
    return "as entropy" if measure in (VARIATION, GAP) and not isinstance(data, ImageSet) else None


def runs(kind: Kind, measure: str, data: Data, setting: Setting) -> list[Run]:
    """One for each seed."""
    network = (
        LeNetSpec(side=8, dropout=kind.dropout)
        if isinstance(data, ImageSet)
        else MLPSpec(plane.NETWORK.widths, kind.dropout)
    )
    method = udp(setting.ball, setting.alpha, setting.steps, CLIMBED[measure])
    return [Run(data, network, method, setting.plan, seed, estimator=kind.members) for seed in setting.seeds]
