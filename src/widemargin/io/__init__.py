"""Models in and out of files: load, export, .onnx, .pt2, the zoo.  Nothing of a file is ever executed."""

from typing import Any

from widemargin.rooms import find, names


def __getattr__(name: str) -> Any:
    return find(__name__, name)


def __dir__() -> list[str]:
    return names(__name__)
