"""A run made ready: its description becomes a network and examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from widemargin.data.batches import updates_per_epoch
from widemargin.data.checks import ClassName
from widemargin.data.dataset import IN_MEMORY, Dataset, Examples, Splits
from widemargin.data.schema import Schema
from widemargin.method import Method
from widemargin.networks.lenet import LeNet
from widemargin.networks.resnet import DropoutResNet18, PreActResNet18
from widemargin.runs.run import Run, Validation
from widemargin.runs.serialize import to_dict
from widemargin.training.plan import Plan
from widemargin.uncertainty.network import Network


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A run with everything at hand."""

    network: Network
    train: Examples
    validation: Examples | None
    test: Examples | None
    method: Method
    plan: Plan
    seed: int
    validated: Validation
    key: str
    description: Mapping[str, Any]
    """What run.yaml will say."""
    older_keys: tuple[str, ...] = ()
    """Of the same run in folders that an earlier version began."""
    left_out: str = ""
    """A sentence on rows that are not trained on, if there are such."""
    schema: Schema | None = None
    """Of the table that is trained on."""

    @property
    def updates(self) -> int:
        """Of the whole plan."""
        return self.plan.updates(len(self.train))

    @property
    def updates_per_epoch(self) -> int:
        return updates_per_epoch(len(self.train), self.plan.batch)


def prepare(
    run: Run, drawn: Dataset | Splits | None = None, device: torch.device | str = "cpu", title: str = ""
) -> PreparedRun:
    """Read the data, if it is not given, and make the network as it is before training."""
    data = run.data.draw() if drawn is None else drawn
    train, validation, test = splits_of(data, device)
    train, left_out = usable(train, run.method, run.plan)
    # A batch that is too large is refused before there is a folder.
    run.plan.updates(len(train))
    network = run.estimator.network(lambda member: channels_last(run.build(member)), run.place, train).to(device)
    description = {"title": title, "key": run.key, "run": to_dict(run), "data": data_note(data), **names_note(data)}
    return PreparedRun(
        network,
        train,
        validation,
        test,
        run.method,
        run.plan,
        run.seed,
        run.validation,
        run.key,
        description,
        run.older_keys,
        left_out,
        train_part(data).schema,
    )


def usable(train: Examples, method: Method, plan: Plan) -> tuple[Examples, str]:
    """What a method can train on, and a sentence if that is not all: few methods take rows without a label."""
    if not train.has_unlabelled or (method.takes_unlabelled and not plan.mixed):
        return train, ""
    if not isinstance(train, Dataset) or train.origin is IN_MEMORY:
        # Of tensors the training refuses them: -1 may as well be meant as a class, beside 1.
        return train, ""
    labelled = train.labelled()
    return labelled, (
        f"{len(train) - len(labelled):,} of {len(train):,} training rows have no label and are left out: vat and "
        "udp-consistency would use them, without mixed batches"
    )


def splits_of(
    data: Dataset | Splits, device: torch.device | str = "cpu"
) -> tuple[Examples, Examples | None, Examples | None]:
    if isinstance(data, Dataset):
        return data.to(device), None, None
    return data.train.to(device), data.validation.to(device), data.test.to(device)


def channels_last(network: nn.Module) -> nn.Module:
    """Channels last in memory: 5 to 25 % faster on a processor for the paper's networks, which it was measured for.

    Others stay as they are: with fewer than 8 channels, strided 1 x 1 convolutions of torch 2.13 then write where they
    must not when they go backwards.
    """
    resnet = isinstance(network, PreActResNet18 | DropoutResNet18)
    narrow = any(isinstance(m, nn.Conv2d) and m.out_channels % 8 for m in network.modules())
    fit_for_it = isinstance(network, LeNet) or (resnet and not narrow)
    # torch's own stubs leave this keyword out.
    return network.to(memory_format=torch.channels_last) if fit_for_it else network  # type: ignore[call-overload]


def train_part(data: Dataset | Splits) -> Dataset:
    return data if isinstance(data, Dataset) else data.train


def names_note(data: Dataset | Splits) -> dict[str, Any]:
    """What classes and features are called, unless that is very much: the next file may hold a few of them alone."""
    train = train_part(data)
    names: dict[str, list[ClassName]] = {"classes": list(train.names), "features": list(train.features)}
    known = {kind: called for kind, called in names.items() if 0 < len(called) <= _MOST_NAMES and _short(called)}
    return {"names": known} if known else {}


def _short(names: list[ClassName]) -> bool:
    return sum(len(str(name)) for name in names) <= _MOST_CHARACTERS


_MOST_NAMES, _MOST_CHARACTERS = 1_000, 1 << 20
"""In a run.yaml; schema.json has them all."""


def data_note(data: Dataset | Splits) -> dict[str, Any]:
    """What exactly the examples were: a description names a place, not what is there."""
    if isinstance(data, Dataset):
        return {"rows": len(data), "shape": list(data.stored.shape[1:]), "digest": data.digest}
    official = [part.origin.official for part in (data.train, data.test)]
    unlabelled = {"unlabelled": len(data.train) - len(data.train.known)} if data.train.has_unlabelled else {}
    return {
        "rows": [len(data.train), len(data.validation), len(data.test)],
        **unlabelled,
        "shape": list(data.train.stored.shape[1:]),
        "digest": " ".join(dict.fromkeys(part.digest for part in (data.train, data.validation, data.test))),
        "official": None if official[0] is None else all(official),
    }
