"""A small convolutional network, trained on 8 x 8 digits in a second; digits that it gets right; foolbox on them."""

import warnings
from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from widemargin.networks.lenet import LeNet
from widemargin.rng import Rng


@cache
def conv_net(rows: int = 100) -> tuple[LeNet, Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)
    with Rng.seeded(0).as_global():
        network = LeNet(side=8)
        optimizer = torch.optim.Adam(network.parameters(), 2e-3)
        for _ in range(400):
            batch = torch.randint(0, 1200, (64,))
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(inputs[batch]), targets[batch]).backward()
            optimizer.step()
    network.eval().requires_grad_(False)
    fresh, own = inputs[1200:], targets[1200:]
    right = network(fresh).argmax(1) == own
    assert float(right.float().mean()) > 0.8
    return network, fresh[right][:rows], own[right][:rows]


def foolbox_places(attack: str) -> Tensor:
    """What foolbox finds for the same digits in 100 steps."""
    with warnings.catch_warnings():
        # It imports what scipy calls deprecated.
        warnings.simplefilter("ignore")
        import foolbox
    network, inputs, labels = conv_net()
    model = foolbox.PyTorchModel(network, bounds=(0, 1), device="cpu")
    return getattr(foolbox.attacks, attack)(steps=100)(model, inputs, labels, epsilons=None)[1]
