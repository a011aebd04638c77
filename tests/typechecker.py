"""The checker that jaxtyping's import hook applies to every signature of the package, in tests only."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints, runtime_checkable

import jaxtyping
import numpy as np
from beartype import BeartypeConf, beartype
from torch import Tensor, fx

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
    last_result: list[Any] = []

    @functools.wraps(function)
    def last(*args: Any, **kwargs: Any) -> Any:
        return last_result.pop()

    # Made when first called: most functions of a package are not called by a test file.
    call_checked, check_last = (functools.cache(lambda one=one: checked(one)) for one in (function, last))
    by_value = functools.cache(lambda: _asks_for_values(function))
    known: dict[Any, set[Any]] = {}
    """Kinds of results by those of the arguments."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        try:
            given = tuple(map(_kind, args))
            given = (given, *kwargs, *map(_kind, kwargs.values())) if kwargs else given
            results = known.get(given)
        except _Traced:
            return function(*args, **kwargs)
        except TypeError:
            return call_checked()(*args, **kwargs)
        if results is not None:
            result = function(*args, **kwargs)
            kind = _kind_or_none(result)
            if kind in results:
                return result
            last_result.append(result)
            check_last()(*args, **kwargs)
        else:
            result = call_checked()(*args, **kwargs)
            kind = _kind_or_none(result)
        if kind is not None and not by_value():
            known.setdefault(given, set()).add(kind)
        return result

    return call


def _kind_or_none(value: Any) -> Any:
    try:
        kind = _kind(value)
        hash(kind)
    except (TypeError, _Traced):
        return None
    return kind


def _asks_for_values(function: Function) -> bool:
    """Whether its signature may name single values, as Literal does."""
    try:
        hints = get_type_hints(function).values()
    except (NameError, TypeError):
        return True
    return any(get_origin(part) is Literal for hint in hints for part in _parts(hint))


def _kind(value: Any, depth: int = 0) -> Any:
    """All that a check asks of a value; a TypeError if it is a list of too many, or of lists of lists of lists."""
    kind = type(value)
    more = _MORE.get(kind, _unknown)
    if more is _unknown:
        more = _MORE[kind] = next((more for base, more in _BY_BASE.items() if issubclass(kind, base)), None)
    return kind if more is None else (kind, more(value, depth))


def _items(values: Any, depth: int) -> Any:
    if len(values) > 50 or depth > 3:
        raise TypeError("some of so many are checked each time")
    return frozenset(_kind(item, depth + 1) for item in (values.items() if isinstance(values, dict) else values))


def _in_order(values: Any, depth: int) -> Any:
    if depth > 3:
        raise TypeError("what is so deep is checked each time")
    return tuple(_kind(item, depth + 1) for item in values)


class _Traced(Exception):
    """A tracer calls networks with something that is no tensor: there is nothing to check."""


def _traced(value: Any, depth: int) -> Any:
    raise _Traced


def _unknown(value: Any, depth: int) -> None: ...


_BY_BASE: dict[type, Callable[[Any, int], Any]] = {
    fx.Proxy: _traced,
    Tensor: lambda value, _: (value.dtype, value.shape),
    np.ndarray: lambda value, _: (value.dtype, value.shape),
    tuple: _in_order,
    **dict.fromkeys((list, dict, set, frozenset), _items),
    type: lambda value, _: value,
}
_MORE: dict[type, Callable[[Any, int], Any] | None] = {}
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
