"""Training in one line of Python: `fit`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from widemargin.arguments import called_as
from widemargin.data.coerce import as_examples, placed, whole
from widemargin.data.dataset import Splits, digest
from widemargin.method import Method, check_method
from widemargin.runs import version_1
from widemargin.runs.folder import RunFolder
from widemargin.runs.keys import key_of
from widemargin.runs.prepare import PreparedRun, channels_last, data_note, prepare, splits_of, usable
from widemargin.runs.run import NetworkSpec, Run, Validation, build_network
from widemargin.runs.runner import Observer, Outcome, run_training
from widemargin.runs.serialize import to_dict
from widemargin.training.plan import Plan, check_is_plan
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.network import Network, check_is_module
from widemargin.uncertainty.single import Single
from widemargin.uncertainty.wrap import checked_device, device_of, dtype_of

Data = Any
"""A description of data, Splits, or inputs and labels in any form that `as_examples` takes."""
_CLEAN = Validation()


@called_as()
def fit(
    network: nn.Module | NetworkSpec,
    data: Data,
    method: Method,
    plan: Plan,
    seed: int = 0,
    out: Path | str | None = None,
    validation: Validation = _CLEAN,
    observers: Sequence[Observer] = (),
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
    if isinstance(network, type):
        check_is_module(network)
    check_method(method)
    check_is_plan(plan)
    if not isinstance(validation, Validation):
        raise ValueError(
            f"validation must be a Validation, which says how, got a {type(validation).__name__}: give points to "
            "validate on as data, wm.data.Splits(train, validation, test)"
        )
    device = None if device is None else checked_device(device)
    prepared = _prepared(network, data, method, plan, seed, validation, device)
    if prepared.left_out:
        # Points at the caller, behind the check of its arguments.
        warnings.warn(prepared.left_out, stacklevel=3)
    return run_training(prepared, folder, observers)


def _prepared(
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
        return prepare(Run(data, network, method, plan, seed, validation=validation), device=device or "cpu")
    built = network if isinstance(network, nn.Module) else build_network(network, seed)
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
        "method": to_dict(method),
        "plan": to_dict(plan),
        "seed": seed,
        "validation": to_dict(validation),
    }
    key = key_of(_identity(described, note))
    older = version_1.key_of_text(repr((_identity(version_1.earlier(described), note),)))
    description = {"key": key, "fitted": described, "data": note}
    return PreparedRun(
        model, train, validated, test, method, plan, seed, validation, key, description, (older,), left_out
    )


def _identity(described: Mapping[str, Any], note: Mapping[str, Any]) -> str:
    # Functions of the user's own have an address in their repr, which is another one in every process.
    return re.sub(r" at 0x[0-9a-f]+", "", repr((described, note)))
