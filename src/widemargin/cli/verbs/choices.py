"""Words that a shell completes; what may be said besides is decided by the parts there are when the command runs."""

from __future__ import annotations

from tyro.constructors import PrimitiveConstructorSpec


class _Offered(tuple[str, ...]):
    """Any word passes the parser: parts are not imported to print a help text, and a user's module may add some."""

    __slots__ = ()

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str)


def offered(*words: str) -> PrimitiveConstructorSpec[str | None]:
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="|".join(words),
        instance_from_str=lambda said: said[0],
        is_instance=lambda value: value is None or isinstance(value, str),
        str_from_instance=lambda value: [str(value)],
        choices=_Offered(words),
    )


NORM = offered("linf", "l2", "l1")
SCHEDULE = offered("constant", "cosine", "triangle", "multistep")
