"""The checker that jaxtyping's import hook applies to every signature of the package, in tests only."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol, get_args, runtime_checkable

from beartype import BeartypeConf, beartype

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def checker(function: Callable[..., Any]) -> Callable[..., Any]:
    # A protocol can only be checked at run time if it says so, and nothing but these tests needs it to.
    for value in list(function.__globals__.values()):
        for part in _parts(value):
            if isinstance(part, type) and part is not Protocol and getattr(part, "_is_protocol", False):
                runtime_checkable(part)
    return _check(function)


def _parts(hint: Any) -> Iterator[Any]:
    """`Sequence[Watch]` has the part `Watch`."""
    yield hint
    for inner in get_args(hint):
        yield from _parts(inner)
