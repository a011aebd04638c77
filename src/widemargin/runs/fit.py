"""How is a network trained in one line of Python?"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from widemargin.runs.runner import Outcome, Observer, run_training
from widemargin.runs.serialize import plain
from widemargin.runs.folder import RunFolder
from widemargin.data.dataset import Dataset, Splits, digest
from widemargin.runs.prepare import PreparedRun, data_note, channels_last, usable, splits_of, prepare
from widemargin.data.checks import UNLABELLED
from widemargin.method import Method
from widemargin.training.plan import Plan
from widemargin.runs.run import DataSpec, NetworkSpec, Trial, Validation, key_of
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
    watchers: Sequence[Observer] = (),
) -> Outcome:
    """Train to the end of the plan, and keep the weights that are best on the validation part, if there is one.

    A module is trained in place; a description (`LeNetSpec()`) is built with the seed.  Data may be a Dataset, Parts, a
    pair of points and labels, or a description of them.  With a folder `out`, an interrupted call goes on where it
    stopped when it is made again with the same arguments.

    Labels of -1 (UNLABELLED), and rows of a file without a label, are for methods that take them: `vat`,
    `udp_consistency`.  Others refuse the former and leave the latter out, with a warning.
    """
    folder = None if out is None else RunFolder(Path(out))
    task = _task(network, data, method, plan, seed, validation)
    if task.left_out:
        warnings.warn(task.left_out, stacklevel=2)
    return run_training(task, folder, watchers)


def _task(
    network: nn.Module | NetworkSpec, data: Data, method: Method, plan: Plan, seed: int, validation: Validation
) -> PreparedRun:
    if not isinstance(network, nn.Module) and not isinstance(data, tuple | Dataset | Splits):
        return prepare(Trial(data, network, method, plan, seed, validation=validation))
    if isinstance(data, tuple):
        data = Dataset(*data)
    drawn = data if isinstance(data, Dataset | Splits) else data.draw()
    train, validated, test = splits_of(drawn)
    train, left_out = usable(train, method, plan)
    built = network if isinstance(network, nn.Module) else Trial(_Given(), network, method, plan, seed).build()
    whole = built if isinstance(built, Network) else Single(at_input(channels_last(built)))
    note = data_note(drawn)
    described = {
        "network": {"own": type(built).__name__, "digest": digest(*whole.state_dict().values())},
        "method": plain(method),
        "plan": plain(plan),
        "seed": seed,
        "validation": plain(validation),
    }
    # Functions of the user's own have an address in their repr, which is another one in every process.
    identity = re.sub(r" at 0x[0-9a-f]+", "", repr((described, note)))
    key = key_of(identity)
    description = {"key": key, "fitted": described, "data": note}
    return PreparedRun(whole, train, validated, test, method, plan, seed, validation, key, description, left_out)


class _Given:
    def draw(self) -> Dataset:
        raise AssertionError("data that is given is not drawn")
