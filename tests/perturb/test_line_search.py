import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from linear_oracle import NORMS, shortest_climb
from widemargin import L1, Box, Linf
from widemargin.perturb.balls import UNIT, Norm
from widemargin.perturb.line_search import firm, line_search, plainly_wrong
from widemargin.rng import Rng

CENTERS = Rng.seeded(2).uniform(torch.empty(40, 5)) - 0.5


LABELS = torch.zeros(40, dtype=torch.int64)


def sphere(points: Tensor) -> Tensor:
    """Class 0 within distance 2 of the origin."""
    out = (points.flatten(1) ** 2).sum(1) - 4
    return torch.stack([-out, out], 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_place_ends_on_the_boundary_and_on_its_segment(dtype: torch.dtype) -> None:
    inputs = CENTERS.to(dtype)
    way = Rng.seeded(3).normal(torch.empty(40, 5)).to(dtype)
    places = inputs + 9 * way
    found = line_search(sphere, inputs, LABELS, places)
    assert bool(plainly_wrong(sphere(found), LABELS).all())
    torch.testing.assert_close(found.norm(dim=1), torch.full((40,), 2, dtype=dtype), rtol=1e-5, atol=0)
    moved, whole = found - inputs, places - inputs
    torch.testing.assert_close(moved / moved.norm(dim=1, keepdim=True), whole / whole.norm(dim=1, keepdim=True))


def test_what_is_right_was_not_found() -> None:
    places = torch.where(torch.arange(40)[:, None] < 20, CENTERS + 0.01, CENTERS + 9)
    found = line_search(sphere, CENTERS, LABELS, places)
    assert torch.equal(found[:20], CENTERS[:20])
    assert not torch.equal(found[20:], CENTERS[20:])


def test_who_is_done_leaves_the_batch() -> None:
    """A place already at the boundary to the last bit takes no more halvings than its bits."""
    asked: list[int] = []

    def counting(points: Tensor) -> Tensor:
        asked.append(len(points))
        return sphere(points)

    places = torch.where(torch.arange(40)[:, None] < 30, CENTERS, CENTERS + 9)
    line_search(counting, CENTERS, LABELS, places)
    assert asked[0] == 40
    assert set(asked[1:]) <= set(range(1, 11))
    assert len(asked) < 32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_lead_that_is_linear_takes_few_guesses(dtype: torch.dtype) -> None:
    asked: list[int] = []

    def plane(points: Tensor) -> Tensor:
        asked.append(len(points))
        return torch.stack([1 - points[:, 0], points[:, 0] - 1], 1)

    inputs = CENTERS.to(dtype)
    found = line_search(plane, inputs, LABELS, inputs + 9)
    torch.testing.assert_close(found[:, 0], torch.ones_like(found[:, 0]))
    assert sum(asked) < 14 * len(inputs)


def test_of_a_place_all_but_there_the_first_guesses_are_enough() -> None:
    asked: list[int] = []

    def counting(points: Tensor) -> Tensor:
        asked.append(len(points))
        return sphere(points)

    boundary = line_search(sphere, CENTERS, LABELS, CENTERS + 9)
    places = CENTERS + 1.000001 * (boundary - CENTERS)
    found = line_search(counting, CENTERS, LABELS, places, 1e-5, first=(5e-6, 1e-3))
    torch.testing.assert_close(found, boundary, rtol=3e-5, atol=1e-5)
    assert asked == [40, 40, 40]
    # Farther off it takes as many guesses as it takes, and ends at the same place.
    far = line_search(sphere, CENTERS, LABELS, CENTERS + 9, 1e-5, first=(5e-6, 1e-3))
    torch.testing.assert_close(far, boundary, rtol=3e-5, atol=1e-5)


def test_a_lead_that_jumps_is_bisected() -> None:
    def step(points: Tensor) -> Tensor:
        out = torch.where(points[:, 0] > 1, 1e9, -1e-9)
        return torch.stack([-out, out], 1)

    found = line_search(step, CENTERS, LABELS, CENTERS + 9)
    assert bool((found[:, 0] > 1).all())
    torch.testing.assert_close(found[:, 0], torch.ones(40), rtol=1e-5, atol=0)


def test_a_place_is_pushed_out_until_rounding_cannot_matter() -> None:
    """A lead of 1e-8 in logits of 1, at inputs of 1: lost in any other order of computation."""

    def plane(points: Tensor) -> Tensor:
        out = points[:, 0] - 0.5 + 1e-8
        return torch.stack([torch.ones_like(out), 1 + out], 1)

    inputs, labels = torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64)
    places = torch.tensor([[0.5, 0.0], [0.6, 0.0], [0.0, 0.0]])
    pushed = firm(plane, inputs, labels, places, UNIT)
    assert torch.equal(pushed[1:], places[1:])
    assert 1e-6 < float(pushed[0, 0]) / 0.5 - 1 < 2e-5
    # There is no room for a push: it stays.
    edge = Box(0.0, 0.5)
    assert torch.equal(firm(plane, inputs, labels, places.clamp_max(0.5), edge)[0], places[0])


def test_a_tie_is_not_plainly_wrong() -> None:
    tie = torch.tensor([[1.0, 1.0 + 1e-7], [1.0, 1.1], [torch.nan, 0.0], [2.0, 1.0]])
    assert plainly_wrong(tie, torch.zeros(4, dtype=torch.int64)).tolist() == [False, True, True, False]


@pytest.mark.parametrize("norm", [Linf, L1], ids=lambda norm: norm.__name__)
@pytest.mark.parametrize("share", [0.1, 0.6, 0.95])
def test_the_shortest_way_is_that_of_a_linear_program(norm: Norm, share: float) -> None:
    rng = np.random.default_rng(5)
    slope, room = rng.uniform(size=12), rng.uniform(size=12)
    needed = share * float(slope @ room)
    if norm is L1:
        known = linprog(
            np.ones(12), A_ub=-slope[None], b_ub=[-needed], bounds=list(zip(np.zeros(12), room, strict=True))
        )
    else:
        rows = np.vstack([np.append(-slope, 0), np.hstack([np.eye(12), -np.ones((12, 1))])])
        bounds = [*zip(np.zeros(12), room, strict=True), (0, None)]
        known = linprog(np.append(np.zeros(12), 1), A_ub=rows, b_ub=np.append(-needed, np.zeros(12)), bounds=bounds)
    assert shortest_climb(slope, room, needed, norm) == pytest.approx(known.fun)
    # In the unit box: upwards from 1 - room.
    center = torch.tensor(1 - room)[None]
    way = norm(0.0, UNIT).to_plane(torch.tensor(slope)[None], torch.tensor([needed]), center)
    assert float(norm(0.0).norm(way)) == pytest.approx(known.fun)
    assert float((way[0] * torch.tensor(slope)).sum()) == pytest.approx(needed)


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_a_way_that_the_box_does_not_allow_ends_in_its_corner(norm: Norm) -> None:
    gradient = torch.tensor([[1.0, -2.0, 0.0]])
    center = torch.tensor([[0.25, 0.75, 0.5]])
    assert norm(0.0, UNIT).to_plane(gradient, torch.tensor([99.0]), center).tolist() == [[0.75, -0.75, 0.0]]
    assert norm(0.0, UNIT).to_plane(gradient, torch.tensor([-1.0]), center).tolist() == [[0.0, 0.0, 0.0]]


def test_a_lead_below_the_rounding_of_what_small_logits_are_sums_of_is_not_plain() -> None:
    small = torch.tensor([[0.18, 0.18 + 1e-6], [0.18, 0.18 + 1e-5]])
    assert plainly_wrong(small, torch.tensor([0, 0])).tolist() == [False, True]
