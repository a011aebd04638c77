"""Imports of optional packages."""

from importlib import import_module
from types import ModuleType


def import_optional(module: str, package: str, purpose: str) -> ModuleType:
    """Imported on first use, so that unused packages need not be installed."""
    try:
        return import_module(module)
    except ImportError:
        raise ValueError(f"{purpose} needs {package}, which is not installed: pip install {package}") from None
