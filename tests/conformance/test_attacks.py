"""What must hold of every attack: a new one is a new row in `cases`."""

import importlib
import inspect
import pkgutil

import pytest

from cases import ATTACKS, NORMS, SHORTEST_ATTACKS
from widemargin import perturb
from widemargin.perturb.attack import Within
from widemargin.perturb.balls import L2, OPEN, UNIT, Ball, Box, Norm
from widemargin.perturb.categories import FromChangedCategories
from widemargin.testing import assert_attack

# Checks of every call's types would take most of the time.
pytestmark = pytest.mark.usefixtures("untyped")
Features = int | tuple[int, ...]
IMAGE = (1, 4, 4)
PLACES: tuple[tuple[float, Box, Features], ...] = ((0.3, UNIT, IMAGE), (0.3, OPEN, 5))
BOX_IN_BALL: tuple[float, Box, Features] = (20.0, UNIT, IMAGE)
every_norm = pytest.mark.parametrize("norm", NORMS)


def test_no_attack_is_missing() -> None:
    modules = [
        importlib.import_module(f"{perturb.__name__}.{one.name}") for one in pkgutil.iter_modules(perturb.__path__)
    ]
    found = {
        value
        for module in modules
        for _, value in inspect.getmembers(module, inspect.isclass)
        if value.__module__ == module.__name__ and hasattr(value, "name") and "__call__" in vars(value)
    }
    rows = {type(make(L2(0.3))) for make in (ATTACKS | SHORTEST_ATTACKS).values()}
    # One attacks rows that have categories: tests/perturb/test_categories.py; the other looks at what an attack found.
    assert found - {FromChangedCategories, Within} == rows


@pytest.mark.parametrize(("radius", "box", "features"), [*PLACES, BOX_IN_BALL])
@every_norm
@pytest.mark.parametrize("name", ATTACKS)
def test_in_a_ball(name: str, norm: Norm, radius: float, box: Box, features: Features) -> None:
    assert_attack(ATTACKS[name](norm(radius, box)), features=features)


@pytest.mark.parametrize(("radius", "box", "features"), PLACES)
@every_norm
@pytest.mark.parametrize("name", SHORTEST_ATTACKS)
def test_without_a_radius(name: str, norm: Norm, radius: float, box: Box, features: Features) -> None:
    ball: Ball = (L2 if name == "ddn" else norm)(radius, box)
    assert_attack(SHORTEST_ATTACKS[name](ball), ball, features)
