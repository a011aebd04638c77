import torch

import widemargin as wm
from widemargin.rng import Rng
from widemargin_studies import near_points


def test_other_units_are_the_same_points() -> None:
    data = wm.data.NarrowCorridor()
    assert torch.equal(near_points.Rescaled(data, 5.0).draw().points, 5 * data.draw().points)


def test_the_control_moves_points_as_the_search_does_and_tells_its_steps() -> None:
    search = wm.udp(wm.L2(0.2, wm.OPEN), alpha=0.02, steps=10).perturb
    assert isinstance(search, wm.perturb.Search)
    network = wm.Single(wm.at_input(torch.nn.Linear(2, 2))).eval()
    points, labels = torch.randn(40, 2), torch.zeros(40, dtype=torch.int64)
    moved = near_points.DrawnSteps(search)(network, points, labels, Rng.seeded(0))
    steps = moved.distance / 0.02
    torch.testing.assert_close(steps, steps.round())
    assert set(steps.round().int().tolist()) <= set(range(1, 11))
    assert len(set(steps.round().int().tolist())) > 3
    assert (moved.delta.norm(dim=1) <= moved.distance + 1e-5).all()
