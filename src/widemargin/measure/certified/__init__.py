"""Certified robustness: interval and linear (CROWN) bounds of every layer."""

from widemargin.measure.certified.radius import Certificate, certified, certified_radius

__all__ = ["Certificate", "certified", "certified_radius"]
