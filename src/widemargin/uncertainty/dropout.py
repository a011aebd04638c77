"""MC dropout: each draw of a network's dropout masks is a member (Gal & Ghahramani 2016)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, final

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from widemargin.parts import part
from widemargin.rng import Rng
from widemargin.shapes import Encoded, MemberLogits, Points
from widemargin.uncertainty.cuts import Cut, is_chain
from widemargin.uncertainty.drawn import SAME, Drawn, Renewal
from widemargin.uncertainty.network import check_logits, no_penalty


class Over(Protocol):
    """Which dropout layers are drawn in eval mode; in train mode all of them are."""

    def picked(self, layers: Sequence[_DropoutNd]) -> Sequence[_DropoutNd]: ...


@part
@dataclass(frozen=True)
class EveryDropout:
    def picked(self, layers: Sequence[_DropoutNd]) -> Sequence[_DropoutNd]:
        return layers


@part
@dataclass(frozen=True)
class LastDropout:
    """Last-layer dropout (Ovadia et al. 2019): everything before it is computed once for all members."""

    def picked(self, layers: Sequence[_DropoutNd]) -> Sequence[_DropoutNd]:
        return layers[-1:]


EVERY = EveryDropout()


@final
class MCDropout(Drawn):
    """`draws` sets of masks for the dropout layers behind the cut, which stay active in eval mode.

    Members part where the first drawn layer is met, as far as a chain of Sequentials leads there: what comes before is
    computed once, what follows in one pass of draws x rows.  Rows must lead the batch in every dropout layer.
    In eval mode batch-norm is in eval mode too, and a dropout before the cut is off: what is perturbed is one point.
    """

    replicas = 1

    def __init__(
        self,
        cut: Cut,
        draws: int,
        renewal: Renewal = SAME,
        over: Over = EVERY,
        seed: int = 0,
    ) -> None:
        super().__init__(draws, renewal, seed)
        if not isinstance(cut, Cut):
            raise ValueError(f"MCDropout takes a network cut in two, got {type(cut).__name__}: use at_input(network)")
        self.encoder, self.head = cut
        layers = [part for part in self.head.modules() if isinstance(part, _DropoutNd) and part.p > 0]
        if not layers:
            raise ValueError(
                "MCDropout needs nn.Dropout layers with p > 0 behind the cut, got none: give the network some, or cut "
                "it earlier"
            )
        # In a tuple they are no submodules a second time.
        self._layers = tuple(over.picked(layers))
        self._masks: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}
        self._masks_of: tuple[int, int] | None = None

    def encode(self, inputs: Points) -> Encoded:
        return self.encoder(inputs)  # type: ignore[no-any-return]

    def logits(self, encoded: Encoded) -> MemberLogits:
        with self._members():
            logits = self.head(encoded)
        check_logits(logits, self.draws * encoded.shape[0])
        return logits.unflatten(0, (self.draws, -1))  # type: ignore[no-any-return]

    def penalty(self) -> Tensor:
        return no_penalty(self)

    @contextmanager
    def _members(self) -> Iterator[None]:
        """The hooks live no longer than a call: the network is the caller's."""
        handles = [_fork(self.head, self._layers).register_forward_pre_hook(_Repeating(self.draws))]
        if not self.training:
            masking = _Masking(self)
            handles += [layer.register_forward_hook(masking) for layer in self._layers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def masks(self, layer: _DropoutNd, call: int, seed: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """[draws 1 *features] each: what a layer multiplies by, and what it adds (alpha dropout does)."""
        if (seed, self.draws) != self._masks_of:
            self._masks.clear()
            self._masks_of = (seed, self.draws)
        key = (call, like.shape[1:], like.dtype, like.device)
        if key not in self._masks:
            # The first call may be in inference mode, whose tensors cannot be used with gradients later.
            with torch.inference_mode(False):
                self._masks[key] = _drawn_masks(layer, self.draws, Rng.seeded(seed, purpose=f"dropout {call}"), like)
        return self._masks[key]


class _Repeating:
    """Once in a pass: one batch becomes as many as there are members."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.done = False

    def __call__(self, module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if self.done:
            return None
        self.done = True
        first, *rest = arguments
        # Unlike expand and flatten, cat keeps channels last in memory.
        return torch.cat([first] * self.times), *rest


class _Masking:
    """A layer may be called more than once in a pass: every call has masks of its own."""

    def __init__(self, network: MCDropout) -> None:
        self.network = network
        self.seed = network.member_seed()
        self.calls = 0

    def __call__(self, layer: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        assert isinstance(layer, _DropoutNd)
        scale, shift = self.network.masks(layer, self.calls, self.seed, output)
        self.calls += 1
        members: Tensor = output.unflatten(0, (self.network.draws, -1)) * scale
        return (members + shift if shift.numel() else members).flatten(0, 1)


def _drawn_masks(layer: _DropoutNd, draws: int, rng: Rng, like: Tensor) -> tuple[Tensor, Tensor]:
    """Every kind of dropout is x -> scale x + shift: the layer itself says which, from what it makes of 0 and of 1."""
    active = copy.copy(layer)
    active.training = True

    def answer(value: float) -> Tensor:
        # On the processor and in single precision: the same masks on every device and in every dtype.
        with rng.as_global(), torch.no_grad():
            dropped: Tensor = active.forward(torch.full((draws, *like.shape[1:]), value))
        return dropped.unsqueeze(1).to(like)

    shift = answer(0.0)
    scale = answer(1.0) - shift
    return scale, shift if bool(shift.any()) else shift.new_empty(0)


def _fork(module: nn.Module, layers: Sequence[_DropoutNd]) -> nn.Module:
    """The smallest part of a chain that holds the first drawn layer, with everything before it outside."""
    drawn = {id(layer) for layer in layers}
    while is_chain(module):
        module = next(child for child in module.children() if any(id(part) in drawn for part in child.modules()))
    return module
