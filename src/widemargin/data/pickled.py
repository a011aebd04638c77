"""Reader of pickled CIFAR batches: an interpreter of the few opcodes that make plain values.

No unpickler is involved, so nothing in a file can be called; and memory is bounded by the bytes and opcodes that are
there, whatever an index or a length claims.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemargin.data.limits import MOST_OPCODES, quoted

_RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_DTYPE, _NDARRAY = "numpy dtype", "numpy ndarray"


class Refused(Exception):
    """A global that a pickle may not use."""


def unpickled(content: bytes) -> dict[bytes, Any]:
    """A mapping of lists, numbers, texts and arrays of bytes."""
    machine = _Machine()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(io.BytesIO(content))):
        if count == MOST_OPCODES:
            raise ValueError(f"more than {MOST_OPCODES:,} opcodes")
        if opcode.name not in _ACTIONS:
            raise ValueError(f"the opcode {opcode.name}")
        _ACTIONS[opcode.name](machine, argument)
    result = machine.stack.pop()
    if not isinstance(result, dict):
        raise ValueError(f"a {type(result).__name__}")
    return result


class _Global:
    def __init__(self, name: str) -> None:
        if name not in (*_RECONSTRUCT, _DTYPE, _NDARRAY):
            raise Refused(quoted(name.replace(" ", ".", 1)).strip("'"))
        self.name = name


class _Array:
    """An array whose values are yet to come."""

    array: NDArray[np.uint8]

    def fill(self, state: Any) -> None:
        _, shape, _, fortran, content = state
        if type(content) is not bytes or any(type(length) is not int for length in shape):
            raise ValueError("an array of another kind")
        if min(shape, default=0) < 1 or math.prod(shape) != len(content):
            raise ValueError(f"{len(content):,} bytes for an array of another size")
        self.array = np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran is True else "C")


class _ByteType:
    """Numpy's dtype, which must be the unsigned byte; its byte order does not matter."""

    def __init__(self, code: Any) -> None:
        if code not in (b"u1", "u1"):
            shown = quoted(code.decode("latin-1") if isinstance(code, bytes) else code) if code else ""
            raise Refused(f"numpy.dtype({shown})")


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        # A mapping: in a list, a single index would decide how much memory is taken.
        self.memo: dict[int, Any] = {}

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def since_mark(self) -> list[Any]:
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values

    def last(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise ValueError("an empty stack")
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def append(self, values: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise ValueError("an append to no list")
        self.stack[-1].extend(values)

    def set_items(self, items: list[Any]) -> None:
        target, keys = self.stack[-1], items[::2]
        # Only these are hashed in a time that follows from the file's size.
        if type(target) is not dict or any(type(key) not in (bytes, str) for key in keys) or len(items) % 2:
            raise ValueError("a mapping without names")
        # Written anew with Python 3, a batch has text for its keys.
        names = [key.encode() if isinstance(key, str) else key for key in keys]
        target.update(zip(names, items[1::2], strict=True))

    def stack_global(self, _: Any) -> None:
        module, name = self.last(2)
        if type(module) is not str or type(name) is not str:
            raise ValueError("a name that is no text")
        self.push(_Global(f"{module} {name}"))

    def reduce(self, _: Any) -> None:
        function, arguments = self.last(2)
        if not isinstance(function, _Global) or type(arguments) is not tuple or not arguments:
            raise ValueError("a call of nothing")
        if function.name == _DTYPE and type(arguments[0]) not in (bytes, str):
            raise Refused("numpy.dtype")
        self.push(_ByteType(arguments[0]) if function.name == _DTYPE else _Array())

    def build(self, _: Any) -> None:
        target, state = self.last(2)
        if isinstance(target, _Array):
            target.fill(state)
        elif not isinstance(target, _ByteType):
            raise ValueError("a state for a plain value")
        self.push(target)


_Action = Callable[[_Machine, Any], None]


def _ignore(_: _Machine, __: Any) -> None:
    """Framing and versions."""


_ACTIONS: dict[str, _Action] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), _ignore),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1"), _Machine.push),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"), _Machine.push),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _Machine.push),
    # Texts of Python 2 are bytes.
    **dict.fromkeys(("SHORT_BINSTRING", "BINSTRING"), lambda machine, text: machine.push(text.encode("latin-1"))),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.push(tuple(machine.last(1))),
    "TUPLE2": lambda machine, _: machine.push(tuple(machine.last(2))),
    "TUPLE3": lambda machine, _: machine.push(tuple(machine.last(3))),
    "APPEND": lambda machine, _: machine.append(machine.last(1)),
    "APPENDS": lambda machine, _: machine.append(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.set_items(machine.last(2)),
    "SETITEMS": lambda machine, _: machine.set_items(machine.since_mark()),
    "MEMOIZE": lambda machine, _: machine.memo.__setitem__(len(machine.memo), machine.stack[-1]),
    **dict.fromkeys(
        ("BINPUT", "LONG_BINPUT"), lambda machine, index: machine.memo.__setitem__(index, machine.stack[-1])
    ),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda machine, index: machine.push(machine.memo[index])),
    "GLOBAL": lambda machine, name: machine.push(_Global(name)),
    "STACK_GLOBAL": _Machine.stack_global,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
}
