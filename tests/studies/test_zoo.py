from pathlib import Path

import numpy as np

from pixel_studies import filled
from widemargin.io.zoo import cards
from widemargin.report.store import Store
from widemargin_studies import tab2, zoo


def test_the_report_has_quantiles_of_every_network_in_both_norms(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert zoo.STUDY.missing(store) == 2 * len(cards())
    for card in cards():
        for number, norm in enumerate(zoo.NORMS):
            margin = (1 + number) * np.linspace(0, 1, 5)
            store.save(zoo.STUDY.parts(card, norm), {"n": 5, "clean": 0.9}, {"margin": margin}, {})
    assert zoo.STUDY.missing(store) == 0
    (table,) = zoo.STUDY.report(store).tables
    assert [row[0] for row in table.rows] == [card.name for card in cards()]
    assert table.rows[0][2:] == ("0.250", "0.500", "0.750", "0.500", "1.000", "1.500")


def test_networks_that_are_judged_get_a_card(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert list(zoo.entries(store)) == []
    filled(store, tab2.ONE)
    made = [card for _, _, card in zoo.entries(store)]
    assert {card.source for card in made} == {"Tab. 2"}
    assert made[0].figures[0].what == "clean"
    assert made[0].figures[0].n == 100
    assert all(card.name in zoo.NAMES.values() for card in made)
