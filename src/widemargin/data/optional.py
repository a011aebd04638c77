"""Is the package that this kind of data needs installed?"""

from importlib import import_module
from types import ModuleType


def import_optional(module: str, package: str, purpose: str) -> ModuleType:
    """Imported only when such data is read, so that what is not used need not be installed."""
    try:
        return import_module(module)
    except ImportError:
        raise ValueError(f"{purpose} needs {package}, which is not installed: pip install {package}") from None
