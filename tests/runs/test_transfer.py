import pytest
import torch
from torch import nn

import widemargin as wm
from widemargin.runs.transfer import embeddings, transfer_accuracy

POINTS = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))


def test_embeddings_are_what_the_last_linear_layer_is_given() -> None:
    layers = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Dropout(), nn.Linear(5, 2))
    network = wm.Single(wm.at_input(layers)).train()
    found = embeddings(network, wm.Dataset(POINTS, torch.zeros(60, dtype=torch.int64)), rows=7)
    assert torch.equal(found, layers[:2](POINTS))
    assert network.training
    with pytest.raises(ValueError, match="ends in a linear layer, got one without any"):
        embeddings(wm.Single(wm.at_input(nn.ReLU())), wm.Dataset(POINTS, torch.arange(60) % 2))


def test_features_that_tell_new_classes_apart_transfer_and_others_do_not() -> None:
    labels = (POINTS[:, 0] > 0).long()
    old, new = wm.Dataset(POINTS[:40], labels[:40]), wm.Dataset(POINTS[40:], labels[40:])
    plan, accuracies = wm.Plan(wm.Updates(60), wm.Adam(0.1)), []
    for kept in (0, 1):
        layers = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
        nn.init.zeros_(layers[0].weight)
        layers[0].weight.data[0, kept] = 1.0
        updates: list[int] = []
        network = wm.Single(wm.at_input(layers))
        accuracies.append(transfer_accuracy(network, old, new, 2, plan=plan, on_progress=updates.append))
        assert updates[-1] == 60
    assert accuracies[0] > 0.9 > 0.75 > accuracies[1]
