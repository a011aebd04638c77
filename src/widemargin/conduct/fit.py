"""How is a network trained in one line of Python?"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from widemargin.conduct.carry_out import Outcome, Watch, carry_out
from widemargin.conduct.description import plain
from widemargin.conduct.folder import RunFolder
from widemargin.conduct.task import Task, data_note, digest, laid_out, of_use, parts_of, task_of
from widemargin.data.checks import UNLABELLED
from widemargin.data.labelled import Parts
from widemargin.data.partly import PartlyLabelled
from widemargin.data.toy import Cloud
from widemargin.method import Method
from widemargin.plan import Plan
from widemargin.run import DataSet, Shape, Trial, Validation, key_of
from widemargin.uncertainty.cuts import at_input
from widemargin.uncertainty.network import Network
from widemargin.uncertainty.single import Single

Data = DataSet | Cloud | PartlyLabelled | Parts | tuple[Tensor, Tensor]
_CLEAN = Validation()


def fit(
    network: nn.Module | Shape,
    data: Data,
    method: Method,
    plan: Plan,
    seed: int = 0,
    out: Path | str | None = None,
    validation: Validation = _CLEAN,
    watchers: Sequence[Watch] = (),
) -> Outcome:
    """Train to the end of the plan, and keep the weights that are best on the validation part, if there is one.

    A module is trained in place; a description (`LeNetShape()`) is built with the seed.  Data may be a Cloud, Parts, a
    pair of points and labels, or a description of them.  With a folder `out`, an interrupted call goes on where it
    stopped when it is made again with the same arguments.

    Labels of -1 (UNLABELLED), and rows of a file without a label, are for methods that take them: `vat`,
    `udp_consistency`.  Others refuse the former and leave the latter out, with a warning.
    """
    folder = None if out is None else RunFolder(Path(out))
    task = _task(network, data, method, plan, seed, validation)
    if task.left_out:
        warnings.warn(task.left_out, stacklevel=2)
    return carry_out(task, folder, watchers)


def _task(
    network: nn.Module | Shape, data: Data, method: Method, plan: Plan, seed: int, validation: Validation
) -> Task:
    if not isinstance(network, nn.Module) and not isinstance(data, tuple | Cloud | PartlyLabelled | Parts):
        return task_of(Trial(data, network, method, plan, seed, validation=validation))
    if isinstance(data, tuple):
        points, labels = data
        data = (PartlyLabelled if bool((torch.as_tensor(labels) == UNLABELLED).any()) else Cloud)(points, labels)
    drawn = data if isinstance(data, Cloud | PartlyLabelled | Parts) else data.draw()
    train, validated, test = parts_of(drawn)
    train, left_out = of_use(train, method, plan)
    built = network if isinstance(network, nn.Module) else Trial(_Given(), network, method, plan, seed).build()
    whole = built if isinstance(built, Network) else Single(at_input(laid_out(built)))
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
    return Task(whole, train, validated, test, method, plan, seed, validation, key, description, left_out)


class _Given:
    def draw(self) -> Cloud:
        raise AssertionError("data that is given is not drawn")
