"""The trained networks that come with the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import rich.console
from tyro.conf import Positional, arg

from widemargin.conduct.zoo import PREFIX, Card, cards, columns, zoo_run
from widemargin.report.tables import Table


@dataclass(frozen=True)
class Zoo:
    """List the trained networks that come with the library, or show the card of one.

    They are named zoo:NAME wherever a model is asked for: widemargin audit zoo:fashion-lenet-udp --eps .1"""

    name: Annotated[Positional[str | None], arg(metavar="NAME", help_behavior_hint="")] = None
    """Whose card to show.  [all in one table]"""

    def __call__(self, console: rich.console.Console) -> None:
        found = cards()
        if self.name is None:
            console.print(table(found).rich(), width=None if console.is_terminal else 1000)
            return
        zoo_run(self.name.removeprefix(PREFIX))
        (card,) = [card for card in found if card.name == self.name.removeprefix(PREFIX)]
        console.print(described(card), highlight=False, markup=False, soft_wrap=True)


def table(found: Sequence[Card]) -> Table:
    measured = columns(found)
    rows = [(card.name, card.method, str(card.epochs), *_figures(card, measured)) for card in found]
    note = "In percent of test points; `widemargin zoo NAME` has the rest."
    return Table("Trained networks", ("name", "method", "epochs", *measured), tuple(rows), note)


def described(card: Card) -> str:
    lines = [
        f"{PREFIX}{card.name}",
        f"  {card.network} on {card.data}, {card.method}, {card.epochs} epochs, seed {card.seed} ({card.source})",
        *(f"  {figure.what}: {100 * figure.value:.1f} % of {figure.n:,} test points" for figure in card.figures),
        f"  repeat it: {card.command}",
    ]
    return "\n".join(lines)


def _figures(card: Card, measured: Sequence[str]) -> list[str]:
    known = {figure.what: f"{100 * figure.value:.1f}" for figure in card.figures}
    return [known.get(what, "") for what in measured]
