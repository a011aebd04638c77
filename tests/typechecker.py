"""The checker that jaxtyping's import hook applies to every signature of the package, in tests only."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints, runtime_checkable

import jaxtyping
import numpy as np
from beartype import BeartypeConf, beartype
from torch import Tensor

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))
_jaxtyped = jaxtyping.jaxtyped
Function = Callable[..., Any]


def install(package: str) -> None:
    """Before anything imports the package: shapes in its signatures are checked at run time."""
    # The hook decorates every function with it.
    jaxtyping.jaxtyped = remembering
    jaxtyping.install_import_hook(package, "typechecker.checker")


def remembering(function: Any = None, *, typechecker: Any) -> Any:
    """As jaxtyping's own, but a call is not checked again if one with values of the same types and shapes was.

    Nothing else decides what a check says, and checks of all calls take as long as all that is tested.
    """
    if function is None:
        return functools.partial(remembering, typechecker=typechecker)
    checked = functools.partial(_jaxtyped, typechecker=typechecker)
    return _remembering(function, checked) if inspect.isfunction(function) else checked(function)


def _remembering(function: Function, checked: Callable[[Function], Function]) -> Function:
    results: list[Any] = []

    @functools.wraps(function)
    def last(*args: Any, **kwargs: Any) -> Any:
        return results.pop()

    # Made when first called: most functions of a package are not called by a test file.
    call_checked, check_last = (functools.cache(lambda one=one: checked(one)) for one in (function, last))
    by_value = functools.cache(lambda: _asks_for_values(function))
    known: set[Any] = set()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        given = _kinds(*args, *kwargs.items()) if kwargs else _kinds(*args)
        if given is None or given not in known or by_value():
            result = call_checked()(*args, **kwargs)
            known.update((given, (given, _kinds(result))))
            return result
        result = function(*args, **kwargs)
        both = given, _kinds(result)
        if both[1] is None or both not in known:
            results.append(result)
            check_last()(*args, **kwargs)
            known.add(both)
        return result

    return call


def _asks_for_values(function: Function) -> bool:
    """Whether its signature may name single values, as Literal does."""
    try:
        hints = get_type_hints(function).values()
    except (NameError, TypeError):
        return True
    return any(get_origin(part) is Literal for hint in hints for part in _parts(hint))


def _kinds(*values: Any) -> Any:
    """All that a check asks of these values; None if there are too many of them in a list."""
    try:
        kinds = tuple(map(_kind, values))
        hash(kinds)
    except TypeError:
        return None
    return kinds


def _kind(value: Any) -> Any:
    kind = type(value)
    more = _MORE.get(kind, _unknown)
    if more is _unknown:
        more = _MORE[kind] = next((more for base, more in _BY_BASE.items() if issubclass(kind, base)), None)
    return kind if more is None else (kind, more(value))


def _items(values: Any) -> Any:
    if len(values) > 50:
        raise TypeError("some of so many are checked each time")
    return frozenset(map(_kind, values.items() if isinstance(values, dict) else values))


def _unknown(value: Any) -> None: ...


_BY_BASE: dict[type, Callable[[Any], Any]] = {
    Tensor: lambda value: (value.dtype, value.shape),
    np.ndarray: lambda value: (value.dtype, value.shape),
    tuple: lambda value: tuple(map(_kind, value)),
    **dict.fromkeys((list, dict, set, frozenset), _items),
    type: lambda value: value,
}
_MORE: dict[type, Callable[[Any], Any] | None] = {}
"""What is asked of a value besides its type, by that."""


def checker(function: Function) -> Function:
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
