"""Training in one call of Python."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from widemargin.data.coerce import as_examples, placed, whole
from widemargin.data.dataset import Dataset, Splits, digest
from widemargin.method import Method, check_method
from widemargin.runs.folder import RunFolder
from widemargin.runs.prepare import PreparedRun, channels_last, data_note, prepare, splits_of, usable
from widemargin.runs.run import NetworkSpec, Trial, Validation, key_of
from widemargin.runs.runner import Observer, Outcome, run_training
from widemargin.runs.serialize import plain
from widemargin.training.plan import Plan
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.network import Network, check_is_module
from widemargin.uncertainty.single import Single
from widemargin.uncertainty.wrap import device_of, dtype_of

Data = Any
"""A description of data, Splits, or inputs and labels in any form that `as_examples` takes."""
_CLEAN = Validation()


def fit(
    network: nn.Module | NetworkSpec,
    data: Data,
    method: Method,
    plan: Plan,
    seed: int = 0,
    out: Path | str | None = None,
    validation: Validation = _CLEAN,
    watchers: Sequence[Observer] = (),
    device: torch.device | str | None = None,
) -> Outcome:
    """Train to the end of the plan, and keep the weights that are best on the validation part, if there is one.

    A module is trained in place, where it is or moved to `device`; a description (`LeNetSpec()`) is built with the
    seed.  Data may be a pair (x, y) of tensors, arrays or frames, a TensorDataset, a DataLoader, a Dataset, Splits or a
    description of them.  With a folder `out`, an interrupted call goes on where it stopped when it is made again with
    the same arguments.

    Labels of -1 (UNLABELLED), and rows of a file without a label, are for methods that take them: `vat`,
    `udp_consistency`.  Others refuse the former and leave the latter out, with a warning.
    """
    folder = None if out is None else RunFolder(Path(out))
    check_method(method)
    task = _task(network, data, method, plan, seed, validation, device)
    if task.left_out:
        warnings.warn(task.left_out, stacklevel=2)
    return run_training(task, folder, watchers)


def _task(
    network: nn.Module | NetworkSpec,
    data: Data,
    method: Method,
    plan: Plan,
    seed: int,
    validation: Validation,
    device: torch.device | str | None,
) -> PreparedRun:
    described_data = hasattr(data, "draw")
    if not isinstance(network, nn.Module) and described_data:
        return prepare(Trial(data, network, method, plan, seed, validation=validation), device=device or "cpu")
    if isinstance(network, type):
        check_is_module(network)
    built = network if isinstance(network, nn.Module) else Trial(_Given(), network, method, plan, seed).build()
    model = built if isinstance(built, Network) else Single(at_input(channels_last(built)))
    if device is not None:
        model.to(device)
    if described_data or isinstance(data, Splits):
        drawn = data if isinstance(data, Splits) else data.draw()
    else:
        drawn = whole(placed(as_examples(data), torch.device("cpu"), dtype_of(model)))
    train, validated, test = splits_of(drawn, device_of(model))
    train, left_out = usable(train, method, plan)
    note = data_note(drawn)
    described = {
        "network": {"own": type(built).__name__, "digest": digest(*model.state_dict().values())},
        "method": plain(method),
        "plan": plain(plan),
        "seed": seed,
        "validation": plain(validation),
    }
    # Functions of the user's own have an address in their repr, which is another one in every process.
    identity = re.sub(r" at 0x[0-9a-f]+", "", repr((described, note)))
    key = key_of(identity)
    description = {"key": key, "fitted": described, "data": note}
    return PreparedRun(model, train, validated, test, method, plan, seed, validation, key, description, left_out)


class _Given:
    def draw(self) -> Dataset:
        raise AssertionError("data that is given is not drawn")
