"""The trained networks that come with the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import rich.console

from widemargin.cli.display import print_json, say
from widemargin.cli.verbs.zoo import Zoo
from widemargin.io.zoo import PREFIX, Card, cards, columns, zoo_run
from widemargin.report.tables import Table


def show_zoo(words: Zoo, console: rich.console.Console) -> None:
    shown = cards()
    if words.name is not None:
        name = words.name.removeprefix(PREFIX)
        zoo_run(name)
        shown = tuple(card for card in shown if card.name == name)
    if words.json:
        print_json({"networks": [asdict(card) for card in shown]})
    elif words.name is None:
        table(shown).print(console)
    else:
        say(console, described(shown[0]))


def table(shown: Sequence[Card]) -> Table:
    measured = columns(shown)
    rows = [(card.name, card.method, str(card.epochs), *_figures(card, measured)) for card in shown]
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
