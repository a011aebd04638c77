"""Train classifiers that keep a wide margin, and measure how wide it is.

Every name at the top stands in `__init__.pyi`; each is imported when it is first used, so that this takes no time.
Parts are in their rooms: `wm.perturb.Search`, `wm.data.Splits`.
"""

from typing import Any

import lazy_loader

from widemargin.rooms import lost

__version__ = "0.1.0"

_imported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _imported(name)
    raise AttributeError(lost(name))
