"""Training in one line of Python: `fit`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from widemargin.data.dataset import Dataset, Splits, digest
from widemargin.method import Method
from widemargin.runs import version_1
from widemargin.runs.folder import RunFolder
from widemargin.runs.keys import key_of
from widemargin.runs.prepare import PreparedRun, channels_last, data_note, prepare, splits_of, usable
from widemargin.runs.run import DataSpec, NetworkSpec, Run, Validation, build_network
from widemargin.runs.runner import Observer, Outcome, run_training
from widemargin.runs.serialize import to_dict
from widemargin.training.plan import Plan
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.single import Single

Data = DataSpec | Dataset | Splits | tuple[Tensor, Tensor]
_CLEAN = Validation()


def fit(
    network: nn.Module | NetworkSpec,
    data: Data,
    method: Method,
    plan: Plan,
    seed: int = 0,
    out: Path | str | None = None,
    validation: Validation = _CLEAN,
    observers: Sequence[Observer] = (),
) -> Outcome:
    """Train to the end of the plan, and keep the weights that are best on the validation part, if there is one.

    A module is trained in place; a description (`LeNetSpec()`) is built with the seed.  Data may be a Dataset, Splits,
    a pair of points and labels, or a description of them.  With a folder `out`, an interrupted call goes on where it
    stopped when it is made again with the same arguments.

    Labels of -1 (UNLABELLED), and rows of a file without a label, are for methods that take them: `vat`,
    `udp_consistency`.  Others refuse the former and leave the latter out, with a warning.
    """
    folder = None if out is None else RunFolder(Path(out))
    prepared = _prepared(network, data, method, plan, seed, validation)
    if prepared.left_out:
        warnings.warn(prepared.left_out, stacklevel=2)
    return run_training(prepared, folder, observers)


def _prepared(
    network: nn.Module | NetworkSpec, data: Data, method: Method, plan: Plan, seed: int, validation: Validation
) -> PreparedRun:
    if not isinstance(network, nn.Module) and not isinstance(data, tuple | Dataset | Splits):
        return prepare(Run(data, network, method, plan, seed, validation=validation))
    if isinstance(data, tuple):
        data = Dataset(*data)
    drawn = data if isinstance(data, Dataset | Splits) else data.draw()
    train, validated, test = splits_of(drawn)
    train, left_out = usable(train, method, plan)
    built = network if isinstance(network, nn.Module) else build_network(network, seed)
    whole = built if isinstance(built, Network) else Single(at_input(channels_last(built)))
    note = data_note(drawn)
    described = {
        "network": {"own": type(built).__name__, "digest": digest(*whole.state_dict().values())},
        "method": to_dict(method),
        "plan": to_dict(plan),
        "seed": seed,
        "validation": to_dict(validation),
    }
    key = key_of(_identity(described, note))
    older = version_1.key_of_text(repr((_identity(version_1.earlier(described), note),)))
    description = {"key": key, "fitted": described, "data": note}
    return PreparedRun(
        whole, train, validated, test, method, plan, seed, validation, key, description, (older,), left_out
    )


def _identity(described: Mapping[str, Any], note: Mapping[str, Any]) -> str:
    # Functions of the user's own have an address in their repr, which is another one in every process.
    return re.sub(r" at 0x[0-9a-f]+", "", repr((described, note)))
