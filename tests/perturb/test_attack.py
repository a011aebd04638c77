import pytest
import torch

from widemargin.perturb.attack import Noise

ROWS = torch.arange(2000)


def test_a_row_draws_the_same_whoever_is_beside_it() -> None:
    noise = Noise(3, ROWS).of("start")
    few = torch.tensor([7, 1999, 0])
    for draw in (noise.uniform, noise.normal, noise.signs):
        assert torch.equal(
            draw(3, 4, draw=5)[few], Noise(3, few).of("start").__getattribute__(draw.__name__)(3, 4, draw=5)
        )
    assert torch.equal(noise.at(few).uniform(2), noise.uniform(2)[few])


@pytest.mark.parametrize(
    "other", [Noise(4, ROWS).of("start"), Noise(3, ROWS).of("end"), Noise(3, ROWS), Noise(3, ROWS + 2000).of("start")]
)
def test_streams_are_unrelated(other: Noise) -> None:
    first, second = Noise(3, ROWS).of("start").uniform(20).flatten(), other.uniform(20).flatten()
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.02
    draws = torch.stack([other.uniform(20, draw=draw).flatten() for draw in range(4)])
    assert float((torch.corrcoef(draws) - torch.eye(4)).abs().max()) < 0.02


def test_distributions() -> None:
    noise = Noise(0, ROWS)
    uniform, normal = noise.uniform(50).double(), noise.normal(50).double()
    counts = torch.histc(uniform, 20, 0, 1)
    # 100,000 draws in 20 bins: standard deviation 69.
    assert float((counts - 5000).abs().max()) < 300
    assert float(uniform.max()) < 1
    assert float(uniform.min()) >= 0
    assert abs(float(normal.mean())) < 0.015
    assert abs(float(normal.std()) - 1) < 0.01
    assert abs(float((normal**4).mean()) - 3) < 0.1
    assert sorted(noise.integers(5, 50).unique().tolist()) == [0, 1, 2, 3, 4]
    assert abs(float(noise.signs(50).mean())) < 0.015
    neighbours = torch.corrcoef(torch.stack([uniform[:-1].flatten(), uniform[1:].flatten()]))[0, 1]
    along = torch.corrcoef(torch.stack([uniform[:, :-1].flatten(), uniform[:, 1:].flatten()]))[0, 1]
    assert abs(float(neighbours)) < 0.02
    assert abs(float(along)) < 0.02
