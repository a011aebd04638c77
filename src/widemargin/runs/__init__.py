"""A run from its description to its folder: describe, prepare, train, validate, resume."""
