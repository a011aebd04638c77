"""A search that stops short of the boundary, together with each sample's distance to it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from widemargin.parts import part
from widemargin.perturb.ascent import Ascent, Fixed, ProjectToBoundary
from widemargin.perturb.attack import Perturbed
from widemargin.perturb.balls import Ball
from widemargin.perturb.objectives import perturbed_gap
from widemargin.perturb.search import Search
from widemargin.rng import AnyRng
from widemargin.uncertainty.network import Network


def projection(ball: Ball, steps: int) -> Search:
    """To the boundary between the two likeliest classes, by projections onto its linear form; needs no label."""
    return Search(-perturbed_gap, ball, Ascent(Fixed(steps), ProjectToBoundary(ball.radius)))


@part
@dataclass(frozen=True)
class WithBoundaryDistance:
    """Points go where `search` takes them; how far each is from the boundary is the distance that `to_boundary` goes.

    The length of a walk does not tell: a search that draws its number of steps has mostly walked as far as it drew.
    """

    search: Search
    to_boundary: Search

    @property
    def takes_unlabelled(self) -> bool:
        return self.search.takes_unlabelled and self.to_boundary.takes_unlabelled

    def __call__(self, network: Network, inputs: Tensor, labels: Tensor, rng: AnyRng) -> Perturbed:
        moved = self.search(network, inputs, labels, rng)
        return moved._replace(distance=self.to_boundary(network, inputs, labels, rng).distance)
