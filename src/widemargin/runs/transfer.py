"""Are the features of a network good for other classes?  Freeze them, train a linear classifier on top (Sec. 5.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor, nn

from widemargin.data.dataset import Dataset, Examples
from widemargin.measure.accuracy import BATCH_SIZE, accuracy, iter_batches
from widemargin.networks.mlp import MLPSpec
from widemargin.recipes import standard
from widemargin.training.loop import train
from widemargin.training.plan import Adam, Cosine, Epochs, Plan
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.network import Network, in_eval_mode
from widemargin.uncertainty.single import Single

PLAN = Plan(Epochs(30), Adam(1e-2, Cosine()), batch=256)


def embeddings(network: Network, examples: Examples, rows: int = BATCH_SIZE) -> Tensor:
    """[examples, features]: what the last linear layer is given.  The network stays as it is."""
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError("transfer needs a network that ends in a linear layer, got one without any")
    seen: list[Tensor] = []

    def look(module: nn.Module, given: tuple[Any, ...]) -> None:
        seen.append(given[0].detach().flatten(1))

    hook = linear[-1].register_forward_pre_hook(look)
    try:
        with torch.no_grad(), in_eval_mode(network):
            for _, inputs, _ in iter_batches(examples, rows):
                network(inputs)
    finally:
        hook.remove()
    return torch.cat(seen)


def transfer_accuracy(
    network: Network,
    old: Examples,
    new: Examples,
    classes: int,
    seed: int = 0,
    plan: Plan = PLAN,
    on_progress: Callable[[int], None] = lambda updates: None,
) -> float:
    """The share of the `new` examples that a linear classifier gets right, trained on embeddings of the `old` ones.

    Features are standardised by the old ones; how the paper trains its classifier is not published.
    """
    features = embeddings(network, old)
    shift, scale = features.mean(0), features.std(0).clamp_min(1e-6)
    known = Dataset((features - shift) / scale, old.labels)
    asked = Dataset((embeddings(network, new) - shift) / scale, new.labels)
    shape = MLPSpec((features.shape[1], classes))
    classifier = Single(at_input(shape.build(Generator().manual_seed(seed))))
    for record in train(classifier, known, standard(), plan, (seed,)):
        on_progress(record.update)
    return accuracy(classifier, asked)
