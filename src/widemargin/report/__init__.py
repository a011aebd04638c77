"""From stored numbers to tables, figures and pages.  Nothing here touches a network."""

from typing import Any

from widemargin.rooms import find, names


def __getattr__(name: str) -> Any:
    return find(__name__, name)


def __dir__() -> list[str]:
    return names(__name__)
