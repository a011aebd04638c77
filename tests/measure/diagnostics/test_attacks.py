import torch

from diagnosed import BALL, FLAT, mlp, single
from widemargin.measure.diagnostics.attacks import broken_at, broken_by, random_places
from widemargin.perturb.pgd import PGD
from widemargin.uncertainty.predictive import is_correct


def test_only_who_was_right_can_be_broken() -> None:
    network = single(mlp())
    right = is_correct(network(FLAT.points), FLAT.labels)
    broken = broken_by(network, FLAT, PGD(type(BALL)(0.5), 5))
    assert broken.any()
    assert not broken[~right].any()
    assert not broken_at(network, FLAT, iter([FLAT.points])).any()


def test_noise_stays_in_the_ball_and_follows_seed_and_draw() -> None:
    (uniform,), (corner,), (again,), (other,) = (
        list(random_places(FLAT, BALL, seed, draw)) for seed, draw in ((0, 0), (0, 1), (0, 1), (1, 1))
    )
    for places in (uniform, corner):
        assert (BALL.norm(places - FLAT.points) <= BALL.radius + 1e-6).all()
    assert torch.equal(corner, again)
    assert not torch.equal(corner, other)
    # Corners are as far away as the box allows.
    assert BALL.norm(corner - FLAT.points).mean() > BALL.norm(uniform - FLAT.points).mean()
