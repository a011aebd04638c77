"""The words of `widemargin zoo`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg


@dataclass(frozen=True)
class Zoo:
    """List the trained networks that come with the library, or show the model card of one.

    They are named zoo:NAME wherever a model is asked for: widemargin audit zoo:fashion-lenet-udp --eps .1"""

    name: Annotated[Positional[str | None], arg(metavar="[NAME]", help_behavior_hint="")] = None
    """Show the model card of this network. (default: all in one table)"""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON instead of tables; docs/command-line.md has the keys."""

    def __call__(self, console: Console) -> None:
        from widemargin.cli.zoo import show_zoo

        show_zoo(self, console)
