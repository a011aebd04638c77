"""The trained networks that come with the library."""

from __future__ import annotations

from collections.abc import Sequence

import rich.console

from widemargin.cli.verbs.zoo import Zoo
from widemargin.io.zoo import PREFIX, Card, cards, columns, zoo_run
from widemargin.report.tables import Table


def show_zoo(words: Zoo, console: rich.console.Console) -> None:
    found = cards()
    if words.name is None:
        console.print(table(found).rich(), width=None if console.is_terminal else 1000)
        return
    zoo_run(words.name.removeprefix(PREFIX))
    (card,) = [card for card in found if card.name == words.name.removeprefix(PREFIX)]
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
