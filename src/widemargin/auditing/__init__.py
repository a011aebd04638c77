"""A model under audit: what is measured, chunk by chunk, and what comes out."""

from typing import Any

from widemargin.rooms import find, names


def __getattr__(name: str) -> Any:
    return find(__name__, name)


def __dir__() -> list[str]:
    return names(__name__)
