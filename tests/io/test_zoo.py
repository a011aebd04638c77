"""A network is put into a zoo, listed, loaded and found again to the bit."""

from pathlib import Path

import pytest
import torch

from widemargin import cli
from widemargin.io.export import trained
from widemargin.io.load import load, load_model
from widemargin.io.zoo import ZOO, Card, Measured, cards, columns, put, zoo_run
from widemargin.runs.folder import RunFolder

CARD = Card(
    name="tiny",
    data="digits",
    network="lenet",
    method="standard",
    epochs=1,
    seed=0,
    figures=(Measured("clean", 0.5, 36), Measured("AutoAttack, l-inf .1", 0.25, 36)),
    source="none",
    command="widemargin train",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("run") / "run"
    cli.main(f"train --data digits --fraction .1 --method standard --epochs 1 --out {folder}".split())
    return RunFolder(folder)


def test_put_listed_and_loaded(run: RunFolder, tmp_path: Path) -> None:
    put(run, run.last, CARD, tmp_path)
    assert cards(tmp_path) == (CARD,)
    assert columns((CARD, CARD)) == ("clean", "AutoAttack, l-inf .1")
    points = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    _, there = trained(zoo_run("tiny", tmp_path), "last")
    _, here = trained(run, "last")
    assert torch.equal(there(points), here(points))
    torch.testing.assert_close(load(run.path)(points), trained(run, "best")[1](points))


def test_an_unknown_name_and_a_damaged_card_are_one_sentence(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'other' is not in the zoo, which has none"):
        zoo_run("other", tmp_path)
    put(run, run.last, CARD, tmp_path)
    with pytest.raises(ValueError, match="'other' is not in the zoo, which has tiny"):
        zoo_run("other", tmp_path)
    card = tmp_path / "tiny" / "card.json"
    card.write_text(card.read_text().replace("0.25", "0.75"))
    with pytest.raises(ValueError, match="damaged"):
        cards(tmp_path)
    with pytest.raises(ValueError, match="is not in the zoo"):
        load_model("zoo:other")


@pytest.mark.parametrize("card", cards(ZOO), ids=lambda card: card.name)
def test_networks_that_come_along_answer(card: Card) -> None:
    network = load(card.name)
    assert not network.training
    assert network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert load_model(f"zoo:{card.name}").run is not None
    assert {figure.what: figure.n for figure in card.figures}["clean"] == 10_000
