"""The checker that jaxtyping's import hook applies to every signature of the package, in tests only."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from beartype import BeartypeConf, beartype

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def checker(function: Callable[..., Any]) -> Callable[..., Any]:
    # A protocol can only be checked at run time if it says so, and nothing but these tests needs it to.
    for value in list(function.__globals__.values()):
        if isinstance(value, type) and value is not Protocol and getattr(value, "_is_protocol", False):
            runtime_checkable(value)
    return _check(function)
