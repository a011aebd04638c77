import pytest
import torch
from torch import nn

from widemargin.auditing.config import AuditConfig
from widemargin.auditing.measuring import measured_chunk
from widemargin.auditing.pace import Cost
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Dataset, Origin
from widemargin.perturb.balls import L2
from widemargin.perturb.suites import starts_of
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(12,), (3, 2, 2)], ids=["a table", "images"])
def test_a_point_that_stands_takes_as_many_passes_as_a_budget_expects(shape: tuple[int, ...]) -> None:
    network = Single(at_input(nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 10)))).eval()
    points, passes = torch.rand(4, *shape), {True: 0, False: 0}
    examples = Dataset(points, network(points).argmax(1), tuple("0123456789"), Origin("memory", "digest"))
    target, balls = AuditTarget(network, "", "", examples, ""), tuple(L2(radius) for radius in (1e-6, 2e-6, 3e-6))
    assert target.classes == 10

    def counted(_: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        passes[torch.is_grad_enabled()] += len(given[0])

    network.register_forward_pre_hook(counted)
    measured_chunk(target, AuditConfig(balls, points=4), torch.arange(4), certify=None)
    assert passes[True] / 4 == pytest.approx(Cost(answer=0.0, slope=1.0).of_point(10, starts_of(points)), rel=0.1)
    assert passes[False] / 4 == pytest.approx(Cost(answer=1.0, slope=0.0).of_point(10, starts_of(points)), rel=0.1)
