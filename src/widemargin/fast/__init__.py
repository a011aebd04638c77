"""Faster ways to compute what a network says, each held to its plain twin by a test."""
