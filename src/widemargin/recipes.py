"""Every method, one expression each: where to move a point, and what to descend there.

Those that climb the uncertainty take any `measure` of it, by the names of `CLIMBED`; entropy is the default.  What they
climb is its log, which has the same maximisers and keeps its gradient where the network is sure.
"""

from widemargin.arguments import called_as
from widemargin.method import BoundaryWeights, Method, SelfScaledBoundaryWeights
from widemargin.perturb.ascent import (
    Ascent,
    Fixed,
    Gaussian,
    InBall,
    Misclassified,
    ProjectToBoundary,
    RandomFraction,
    Steepest,
    Uniform,
)
from widemargin.perturb.balls import Ball, radius_of
from widemargin.perturb.boundary_distance import WithBoundaryDistance, projection
from widemargin.perturb.objectives import (
    Objective,
    clean_entropy,
    clean_loss,
    consistency,
    divergence,
    labelled_loss,
    offset_cross_entropy,
    perturbed_gap,
    perturbed_log_entropy,
    perturbed_loss,
)
from widemargin.perturb.pgd import pgd_search
from widemargin.perturb.search import Search, Unperturbed

_A_LITTLE = 1e-4
"""Of an objective that decides where another has no gradient, and nowhere else."""


@called_as()
def standard() -> Method:
    """Cross-entropy on clean points (ERM)."""
    return Method(Unperturbed(), clean_loss)


@called_as()
def max_entropy(weight: float) -> Method:
    """eq. (MaxE): reward unsure answers at the clean points (Pereyra et al. 2017)."""
    return Method(Unperturbed(), clean_loss - weight * clean_entropy)


@called_as()
def fgsm(ball: Ball) -> Method:
    """eq. (FGSM): one step of the loss to the edge of the ball (Goodfellow et al. 2015)."""
    return Method(pgd_search(ball, radius_of(ball), 1), perturbed_loss)


@called_as()
def r_fgsm(ball: Ball, alpha: float) -> Method:
    """eq. (R-FGSM): the same from a random point of the ball, with the gradient taken there (Tramer et al. 2018)."""
    return Method(Search(perturbed_loss, ball, Ascent(Fixed(1), Steepest(alpha), InBall())), perturbed_loss)


@called_as()
def pgd(ball: Ball, alpha: float, steps: int) -> Method:
    """eq. (PGD): several steps of the loss, the paper's LDP-PGD (Madry et al. 2018)."""
    return Method(pgd_search(ball, alpha, steps), perturbed_loss)


@called_as()
def friendly(ball: Ball, alpha: float, steps: int, patience: int) -> Method:
    """PGD that freezes a sample `patience` steps after it crossed the boundary (Zhang et al. 2020)."""
    ascent = Ascent(Fixed(steps), Steepest(alpha), until=Misclassified(patience))
    return Method(Search(perturbed_loss, ball, ascent), perturbed_loss)


@called_as()
def trades(ball: Ball, alpha: float, steps: int, weight: float) -> Method:
    """eq. (TRADES) with the KL divergence of Zhang et al. 2019.

    It has no gradient at the clean point, and rises on both sides of it: towards the boundary, and away from it.  A
    little of the log-entropy makes the first step, towards the boundary; from their random start a quarter of the
    points go the other way.
    """
    search = Search(divergence + _A_LITTLE * perturbed_log_entropy, ball, Ascent(Fixed(steps), Steepest(alpha)))
    return Method(search, clean_loss + weight * divergence)


@called_as()
def trades_random_start(ball: Ball, alpha: float, steps: int, weight: float) -> Method:
    """The same from the small Gaussian start of Zhang et al. 2019."""
    search = Search(divergence, ball, Ascent(Fixed(steps), Steepest(alpha), Gaussian()))
    return Method(search, clean_loss + weight * divergence)


@called_as()
def trades_cross_entropy(ball: Ball, alpha: float, steps: int, weight: float) -> Method:
    """eq. (TRADES) as the paper's tables use it: cross-entropy between the two answers, with 1e-8 inside the log whose
    gradient makes the first step; weights above 1 collapse."""
    search = Search(offset_cross_entropy, ball, Ascent(Fixed(steps), Steepest(alpha)))
    return Method(search, clean_loss + weight * offset_cross_entropy)


@called_as()
def udp(ball: Ball, alpha: float, steps: int, measure: Objective = perturbed_log_entropy) -> Method:
    """eq. (UDP-PGD), Alg. 1: climb the uncertainty for 1..steps steps, train on where that leads."""
    return Method(_uncertain(ball, alpha, steps, measure), perturbed_loss)


@called_as()
def udpr(ball: Ball, alpha: float, steps: int, weight: float, measure: Objective = perturbed_log_entropy) -> Method:
    """eq. (UDPR), Alg. 1 with reg: the clean loss, and the loss at the UDP point as a regulariser."""
    return Method(_uncertain(ball, alpha, steps, measure), clean_loss + weight * perturbed_loss)


@called_as()
def udp_single_step(ball: Ball, measure: Objective = perturbed_log_entropy) -> Method:
    """App. E.2: one step of the uncertainty to the edge of the ball, against catastrophic overfitting."""
    return Method(_uncertain(ball, radius_of(ball), 1, measure), perturbed_loss)


@called_as()
def udp_trades(
    ball: Ball, alpha: float, steps: int, weight: float, measure: Objective = perturbed_log_entropy
) -> Method:
    """App. A.3: UDP points, TRADES criterion with the KL divergence."""
    return Method(_uncertain(ball, alpha, steps, measure), clean_loss + weight * divergence)


@called_as()
def udp_trades_cross_entropy(
    ball: Ball, alpha: float, steps: int, weight: float, measure: Objective = perturbed_log_entropy
) -> Method:
    """App. A.3: UDP points, TRADES criterion with the cross-entropy of the paper's tables."""
    return Method(_uncertain(ball, alpha, steps, measure), clean_loss + weight * offset_cross_entropy)


@called_as()
def udp_near(ball: Ball, alpha: float, steps: int, scale: float, measure: Objective = perturbed_log_entropy) -> Method:
    """Ours: UDP in which samples near the boundary count more, by exp(-distance / scale).

    Three projections find the distance.  A relative of DyART's weights (Xu et al. 2023), and like MMA, GAIRAT and MAIL
    they let near points decide.
    """
    search = WithBoundaryDistance(_uncertain(ball, alpha, steps, measure), projection(ball, steps=3))
    return Method(search, perturbed_loss, BoundaryWeights(scale))


@called_as()
def udp_projected(ball: Ball, steps: int = 4) -> Method:
    """Ours: the same with nothing to tune.  A few projection steps to the boundary, a random fraction of the path (the
    theorem's setting, UDP-x), and weights in units of the nearest points' distance."""
    ascent = Ascent(Fixed(steps), ProjectToBoundary(radius_of(ball)), fraction=RandomFraction(0.0, 1.0))
    return Method(Search(-perturbed_gap, ball, ascent), perturbed_loss, SelfScaledBoundaryWeights())


@called_as()
def udp_consistency(
    ball: Ball, alpha: float, steps: int, weight: float, measure: Objective = perturbed_log_entropy
) -> Method:
    """Ours, for rows with and without labels: cross-entropy where there is one, and everywhere the answer at the UDP
    point drawn to that at the clean point.  UDP needs no label to find its point."""
    return Method(_uncertain(ball, alpha, steps, measure), labelled_loss + weight * consistency)


@called_as()
def vat(ball: Ball, weight: float) -> Method:
    """The same criterion at virtual adversarial points (Miyato et al. 2018): one step of the divergence to the edge of
    the ball, from a small random nudge; their single power iteration if the ball is L2."""
    search = Search(divergence, ball, Ascent(Fixed(1), Steepest(radius_of(ball)), Gaussian()))
    return Method(search, labelled_loss + weight * consistency)


def _uncertain(ball: Ball, alpha: float, steps: int, measure: Objective) -> Search:
    if not isinstance(measure, Objective) or measure == perturbed_gap:
        raise ValueError(
            "measure must be an objective that grows with uncertainty, such as "
            f"wm.perturb.CLIMBED['mutual information'], got {measure!r}"
        )
    return Search(measure, ball, Ascent(Uniform(1, steps), Steepest(alpha)))
