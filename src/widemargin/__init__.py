"""Train classifiers that keep a wide margin, and measure how wide it is.

Every public name stands in `__init__.pyi`; each is imported when it is first used, so that this takes no time."""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
