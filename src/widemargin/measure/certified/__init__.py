"""Where is a network proven right?  Certified lower bounds on robustness, by linear bounds of every layer."""

from widemargin.measure.certified.radius import certified, certified_radius

__all__ = ["certified", "certified_radius"]
