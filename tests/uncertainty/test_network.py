import pytest
import torch
from torch import Tensor, nn

from widemargin import Ensemble, Single, at_input
from widemargin.networks.mlp import MLP
from widemargin.rng import Rng
from widemargin.uncertainty.network import check_network, in_eval_mode
from widemargin.uncertainty.replicas import Replicas

POINTS = torch.linspace(-1, 1, 18).view(6, 3)


def test_networks_here_add_nothing_to_the_loss() -> None:
    for network in (Single(at_input(MLP(3, 4))), Ensemble([MLP(3, 4)]), Replicas([MLP(3, 4)])):
        assert network.penalty() == 0


def mixed_modes() -> Single:
    network = Single(at_input(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))))
    network.train().head[1].eval()
    return network


def test_every_module_gets_its_own_mode_back_even_after_an_error() -> None:
    network = mixed_modes()
    before = [module.training for module in network.modules()]

    def fail_in_eval_mode() -> None:
        with in_eval_mode(network):
            assert not any(module.training for module in network.modules())
            raise KeyError

    with pytest.raises(KeyError):
        fail_in_eval_mode()
    assert [module.training for module in network.modules()] == before


def test_trying_a_network_counts_its_classes_and_leaves_it_alone() -> None:
    network = mixed_modes()
    buffers = [buffer.clone() for buffer in network.buffers()]
    before = [module.training for module in network.modules()]
    assert check_network(network, POINTS) == 2
    assert [module.training for module in network.modules()] == before
    assert all(torch.equal(now, then) for now, then in zip(network.buffers(), buffers, strict=True))


class Answering(nn.Module):
    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, points: Tensor) -> Tensor:
        return self.answer


ROWS = Rng.seeded(0).normal(torch.empty(6, 3))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (ROWS.softmax(-1), "the network must return logits, got rows that look like probabilities: remove its softmax"),
        (ROWS / 0, "the network must return finite logits, got NaN or infinity on the first points"),
        (ROWS[:, :1], r"the network must return logits of shape \[6, classes\] with at least 2 classes, got \[6, 1\]"),
        (ROWS[:, 0], r"the network must return logits of shape \[6, classes\] with at least 2 classes, got \[6\]"),
        (ROWS[:4], r"the network must return logits of shape \[6, classes\] with at least 2 classes, got \[4, 3\]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("kind", [lambda head: Single(at_input(head)), lambda head: Ensemble([head])])
def test_answers_that_are_no_logits_are_refused(kind: object, answer: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        check_network(kind(Answering(answer)), POINTS)
