import pytest
import torch
from torch import nn, zeros

from widemargin.auditing.config import AuditConfig
from widemargin.auditing.pace import Cost, Pace, listening
from widemargin.auditing.runner import _asked
from widemargin.auditing.target import AuditTarget
from widemargin.data.dataset import Dataset, Origin
from widemargin.perturb.balls import L2
from widemargin.perturb.suites import starts_of
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.single import Single


def test_points_under_way_count_by_their_share_and_are_never_all_done() -> None:
    told: list[int] = []
    pace = Pace(lambda done, of: told.append(done), of=30, expected=4)
    with pace.piece(done=10, points=10) as heard:
        for _ in range(100):
            heard(1)
    assert told == [11, 12, 13, 14, 15, 16, 17, 18, 19], "each once, and the last not before it is there"
    assert pace.expected == 10, "of the next ones"
    told.clear()
    with pace.piece(done=20, points=10) as heard:
        heard(49)
    assert told == [24]


def test_whatever_a_network_is_asked_is_heard_of_once() -> None:
    heard: list[int] = []
    network = nn.Linear(2, 2)
    with listening(heard.append, network, network):
        network(zeros(3, 2))
    network(zeros(5, 2))
    assert heard == [3]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(12,), (3, 2, 2)], ids=["a table", "images"])
def test_a_point_that_stands_takes_as_many_passes_as_a_budget_expects(shape: tuple[int, ...]) -> None:
    network = Single(at_input(nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 10)))).eval()
    points, passes = torch.rand(4, *shape), {True: 0, False: 0}
    examples = Dataset(points, network(points).argmax(1), tuple("0123456789"), Origin("memory", "digest"))
    subject, balls = AuditTarget(network, "", "", examples, ""), tuple(L2(radius) for radius in (1e-6, 2e-6, 3e-6))
    assert subject.classes == 10

    def counted(_: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        passes[torch.is_grad_enabled()] += len(given[0])

    network.register_forward_pre_hook(counted)
    _asked(subject, AuditConfig(balls, points=4), torch.arange(4), certify=False)
    assert passes[True] / 4 == pytest.approx(Cost(answer=0.0, slope=1.0).of_point(10, starts_of(points)), rel=0.1)
    assert passes[False] / 4 == pytest.approx(Cost(answer=1.0, slope=0.0).of_point(10, starts_of(points)), rel=0.1)
