"""Table 5: perturbations in latent space, on 5 % of CIFAR-10."""

from __future__ import annotations

from collections.abc import Mapping

from widemargin.report.document import Report, Verdict
from widemargin.report.store import Store
from widemargin.report.verdicts import Estimate, greater
from widemargin_studies import published
from widemargin_studies.pixels import LATENT, Cell, ImageStudy
from widemargin_studies.scales import LATENT_SMALL, PAPER
from widemargin_studies.single_figure import table

TITLE = "Tab. 5: latent space, 5 % of CIFAR-10"
EPS, ALPHA, STEPS = 2.0, 0.01, 20
"""The text says eps .2: 20 steps of .01 reach .2 at most, so that both readings train the same network."""
CELLS = (
    Cell(LATENT, "standard"),
    *(Cell(LATENT, name, EPS, ALPHA, STEPS) for name in ("PGD", "TRADES", "UDPR", "UDP-PGD")),
)


def _worst_and_best(estimates: Mapping[str, Estimate]) -> tuple[str, str]:
    """The worst of UDP and the best of all others."""
    udp = [name for name in estimates if name.startswith("UDP")]
    others = [name for name in estimates if name not in udp]
    return min(udp, key=lambda name: estimates[name].value), max(others, key=lambda name: estimates[name].value)


def _tell(study: ImageStudy, store: Store) -> Report:
    ours = {cell.name: study.accuracy(cell, store, "clean") for cell in study.cells}
    paper = {cell.name: published.TAB5[cell.name, cell.eps][0].estimate() for cell in study.cells}
    udp, others = _worst_and_best(ours)
    verdict = Verdict(
        "UDP in latent space is more accurate than the baseline, LS-PGD and LS-TRADES.",
        greater(ours[udp], ours[others]),
        f"the worse UDP method {ours[udp].percent} ({udp}), the best of the others {ours[others].percent} ({others})",
        greater(*(paper[name] for name in _worst_and_best(paper))),
    )
    return Report(
        f"{study.TITLE}, scale {study.scale.name}",
        "With few examples, does moving them in latent space help?",
        f"{study.settings(store)} Perturbed behind the last convolution; alpha {ALPHA}, {STEPS} steps: they reach "
        f"{ALPHA * STEPS:g} at most, so that eps 2 (of the table) and eps .2 (of the text) are the same.",
        (verdict,),
        (table(study, store, "clean accuracy", "clean", published.TAB5),),
    )


FULL, SMALL = (ImageStudy(TITLE, scale, CELLS, scale.robustness(()), _tell) for scale in (PAPER, LATENT_SMALL))
