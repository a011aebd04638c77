"""Several networks, one opinion: each is a member."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from widemargin.networks.mlp import MLP
from widemargin.shapes import Encoded, MemberLogits, Points
from widemargin.uncertainty.network import Network, check_is_module, check_logits, logits_of, no_penalty

_SMALL = 64 * 64


@final
class Ensemble(Network):
    """Members are perturbed together, so they are all cut at the input.  They may be trained jointly or each before.

    Trained jointly, the loss is the mean of theirs: each gets 1 / M of its own gradient.  Adam does not care; for SGD
    `jointly` gives a descent under which every member moves as it would alone.

    Small MLPs of one shape answer in one batched product.  Measured on one core, 5 members, forward and backward: MLPs
    with layers up to 64 x 64 mostly take 0.4 to 0.8 of the loop's time, larger ones 0.7 to 1.6.  torch.func's vmap took
    0.8 to 2.4 times the loop's, mostly more than 1, and 0.9 for LeNets, so it is not used (5 members, a busy machine).
    """

    replicas = 1

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        if not members:
            raise ValueError("an Ensemble needs at least one member, got none")
        for member in members:
            check_is_module(member)
        self.members = nn.ModuleList(members)

    def encode(self, inputs: Points) -> Encoded:
        return inputs

    def logits(self, encoded: Encoded) -> MemberLogits:
        small = small_of_one_shape(list(self.members))
        return stacked_answer(small, encoded) if small else answer_one_by_one(list(self.members), encoded)

    def penalty(self) -> Tensor:
        return no_penalty(self)


def answer_one_by_one(members: Sequence[nn.Module], encoded: Encoded) -> MemberLogits:
    """The slow, obvious twin, and the way of everything but small MLPs."""
    answers = [logits_of(member(encoded), type(member).__name__) for member in members]
    for answer in answers:
        check_logits(answer, encoded.shape[0])
    return torch.stack(answers)


def stacked_answer(members: Sequence[MLP], encoded: Encoded) -> MemberLogits:
    """A layer of all members at once.  Their weights are stacked anew every time, so that each gets its gradient."""
    points = encoded.expand(len(members), *encoded.shape)
    columns = list(zip(*(member.linear_layers() for member in members), strict=True))
    for number, column in enumerate(columns, start=1):
        bias = torch.stack([layer.bias for layer in column]).unsqueeze(1)
        points = torch.baddbmm(bias, points, torch.stack([layer.weight for layer in column]).mT)
        if number < len(columns):
            points = points.relu()
    return points


def small_of_one_shape(members: Sequence[nn.Module]) -> list[MLP]:
    """The members, if one batched product is faster than a loop over them; else none."""
    mlps = [member for member in members if type(member) is MLP and member.drops is None and not _hooked(member)]
    shapes = {tuple(tuple(layer.weight.shape) for layer in mlp.linear_layers()) for mlp in mlps}
    small = len(mlps) == len(members) > 1 and len(shapes) == 1 and all(a * b <= _SMALL for a, b in next(iter(shapes)))
    return mlps if small else []


def _hooked(module: nn.Module) -> bool:
    return any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
