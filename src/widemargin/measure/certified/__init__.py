"""Certified robustness: interval and linear (CROWN) bounds of every layer."""

from widemargin.measure.certified.radius import certified, certified_radius

__all__ = ["certified", "certified_radius"]
