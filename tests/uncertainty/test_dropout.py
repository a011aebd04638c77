from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from widemargin import MCDropout, at_input
from widemargin.networks.mlp import MLPSpec
from widemargin.networks.named import DropoutResNetSpec, LeNetSpec
from widemargin.rng import Rng
from widemargin.uncertainty.cuts import after, before_head
from widemargin.uncertainty.dropout import EveryDropout, LastDropout

POINTS = torch.linspace(-1, 1, 18).view(6, 3)


def counted(*layers: nn.Module) -> tuple[nn.Sequential, list[int]]:
    """A chain that notes how many rows its first layer sees."""
    network, rows = nn.Sequential(*layers), []
    network[0].register_forward_hook(lambda module, arguments, output: rows.append(len(output)))
    return network, rows


@pytest.mark.parametrize(
    "layer",
    [nn.Dropout(0.5), nn.AlphaDropout(0.5), nn.Dropout(0.5, inplace=True), nn.FeatureAlphaDropout(0.5)],
    ids=repr,
)
def test_every_kind_of_dropout_is_drawn_as_it_draws_itself(layer: nn.Module) -> None:
    """A member's answer is among what the layer does in train mode: the same two values for kept and lost."""
    network = MCDropout(at_input(nn.Sequential(layer)), 40).eval()
    kept_or_lost = network.logits(torch.full((2, 3), 2.0)).round(decimals=4).unique()
    with Rng.seeded(0).as_global():
        drawn = nn.Sequential(layer).train()(torch.full((200, 3), 2.0)).round(decimals=4).unique()
    torch.testing.assert_close(kept_or_lost, drawn)


def test_channels_are_lost_whole() -> None:
    head = nn.Sequential(nn.Dropout2d(0.5), nn.Flatten())
    answer = MCDropout(at_input(head), 30).eval().logits(torch.ones(2, 4, 3, 3)).unflatten(-1, (4, 9))
    assert (answer.amax(-1) == answer.amin(-1)).all()
    assert answer.unique().tolist() == [0.0, 2.0]
    assert torch.equal(answer[:, 0], answer[:, 1])


def test_the_mean_over_many_draws_is_the_layer_in_eval_mode() -> None:
    head = nn.Sequential(nn.Dropout(0.3), nn.Linear(3, 2))
    answer = MCDropout(at_input(head), 20_000).eval().logits(POINTS).mean(0)
    torch.testing.assert_close(answer, head.eval()(POINTS), rtol=0, atol=0.02)


def test_a_layer_that_is_called_twice_has_two_masks() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, points: Tensor) -> Tensor:
            return torch.stack([self.drop(points)[:, 0], self.drop(points)[:, 0]], 1)

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.twice = Twice()

        def forward(self, points: Tensor) -> Tensor:
            return self.twice(points)

    answer = MCDropout(at_input(Whole()), 50).eval().logits(torch.ones(2, 3))
    assert not torch.equal(answer[..., 0], answer[..., 1])


def test_what_comes_before_the_first_drawn_layer_is_computed_once() -> None:
    layers = nn.Linear(3, 5), nn.Dropout(0.5), nn.Sequential(nn.ReLU(), nn.Dropout(0.5)), nn.Linear(5, 2)
    network, rows = counted(*layers)
    behind: list[int] = []
    layers[-1].register_forward_hook(lambda module, arguments, output: behind.append(len(output)))
    for training in (False, True):
        MCDropout(at_input(network), 4).train(training).logits(POINTS)
    assert (rows, behind) == ([6, 6], [24, 24])


def test_last_dropout_draws_the_last_layer_alone() -> None:
    first, last = nn.Dropout(0.5), nn.Dropout(0.5)
    network = nn.Sequential(nn.Linear(3, 5), first, nn.ReLU(), last, nn.Linear(5, 2))
    answer = MCDropout(at_input(network), 4, over=LastDropout()).eval().logits(POINTS)
    last_alone = nn.Sequential(network[0], network[2], last, network[4])
    torch.testing.assert_close(answer, MCDropout(at_input(last_alone), 4).eval().logits(POINTS))
    assert not torch.equal(answer, MCDropout(at_input(network), 4, over=EveryDropout()).eval().logits(POINTS))


def test_batch_norm_is_in_eval_mode_when_the_network_is() -> None:
    norm = nn.BatchNorm1d(5)
    network = MCDropout(at_input(nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5), norm, nn.Linear(5, 2))), 3)
    before = norm.running_mean.clone()
    network.eval().logits(POINTS)
    assert torch.equal(norm.running_mean, before)
    network.train().logits(POINTS)
    assert not torch.equal(norm.running_mean, before)


def test_masks_do_not_depend_on_the_dtype() -> None:
    head = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2))
    single = MCDropout(at_input(head), 5).eval().logits(POINTS)
    double = MCDropout(at_input(head), 5).eval().double().logits(POINTS.double())
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "points"),
    [
        (LeNetSpec(side=8, dropout=0.2), (2, 1, 8, 8)),
        (DropoutResNetSpec(width=2), (2, 3, 8, 8)),
        (MLPSpec((4, 5, 6, 2), 0.2), (2, 4)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("cut", [at_input, before_head])
def test_the_networks_with_dropout_are_drawn_wherever_they_are_cut(
    cut: Callable[..., object], shape: LeNetSpec, points: tuple[int, ...]
) -> None:
    network = MCDropout(cut(shape.build(Rng.seeded(0).generators[0])), 3).eval()
    answer = network.logits(network.encode(torch.ones(points)))
    assert answer.shape[:2] == (3, 2)
    assert (answer.std(0) > 0).all()


def test_what_cannot_be_drawn_is_refused() -> None:
    message = r"^MCDropout needs nn.Dropout layers with p > 0 behind the cut, got none: give the network some, or cut"
    for cut in (
        at_input(nn.Linear(3, 2)),
        at_input(nn.Sequential(nn.Dropout(0.0), nn.Linear(3, 2))),
        after(nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2)), 1),
    ):
        with pytest.raises(ValueError, match=message):
            MCDropout(cut, 3)
    with pytest.raises(ValueError, match=r"^draws must be a whole number of at least 1, got 0$"):
        MCDropout(at_input(nn.Sequential(nn.Dropout(0.5))), 0)


def test_masks_that_are_first_drawn_in_inference_mode_serve_gradients_too() -> None:
    network = MCDropout(at_input(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))), 3).eval()
    with torch.inference_mode():
        network(POINTS)
    points = POINTS.clone().requires_grad_()
    network(points).sum().backward()
    assert points.grad is not None
