"""Where names are defined, derived from the source files: rooms as lazy attributes, sentences for lost names.

`wm.perturb.Search` is found in whichever file of the room defines it, and imported when it is first used.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent
_DEFINED = re.compile(r"^(?:(?:class|def) (?=\w+[(:])|(?=\w+(?:: [^=\n]+)? = ))([A-Za-z]\w*)", re.MULTILINE)


@cache
def homes(package: str) -> dict[str, list[str]]:
    """For every public name of a package the modules that define it.  Files are read, not imported."""
    folder = _ROOT.joinpath(*package.split(".")[1:])
    modules: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        module = ".".join((package, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
        for name in dict.fromkeys(_DEFINED.findall(path.read_text(encoding="utf-8"))):
            modules.setdefault(name, []).append(module)
    return modules


def find(package: str, name: str) -> Any:
    """A room's `__getattr__`: one of its files, or what one of them defines."""
    if not name.startswith("_"):
        folder = _ROOT.joinpath(*package.split(".")[1:])
        if (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists():
            return import_module(f"{package}.{name}")
        modules = homes(package).get(name, [])
        if len(modules) == 1:
            return getattr(import_module(modules[0]), name)
        if modules:
            raise AttributeError(f"{name} is defined in {' and in '.join(modules)}: import it from one of them")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def names(package: str) -> list[str]:
    """A room's `__dir__`."""
    return sorted(name for name, modules in homes(package).items() if len(modules) == 1)


def lost(name: str) -> str:
    """Where a name is that is not at the top of the package."""
    modules = [] if name.startswith("_") else homes("widemargin").get(name, [])
    if not modules:
        return f"module 'widemargin' has no attribute {name!r}"
    places = " or ".join(f"from {module} import {name}" for module in modules)
    return f"{name} is not at the top of widemargin but in a room: {places}"
