"""Numbers do not move unnoticed; `golden.values` says how to move them on purpose."""

import json

import pytest
import torch

from golden.values import FILE, METHODS, computed

GOLDEN = json.loads(FILE.read_text())


def test_every_recipe_has_golden_values() -> None:
    assert GOLDEN.keys() == METHODS.keys()


@pytest.mark.parametrize("name", METHODS)
def test_a_recipe_does_what_it_did(name: str) -> None:
    now, then = computed(METHODS[name]), GOLDEN[name]
    assert now["loss"] == pytest.approx(then["loss"], rel=1e-9)
    torch.testing.assert_close(torch.tensor(now["delta"]), torch.tensor(then["delta"]), rtol=0, atol=1e-6)
