"""The names that the repr of a part may use."""

from typing import Any

import widemargin
from widemargin.parts import PARTS
from widemargin.perturb import balls, objectives


def public_names() -> dict[str, Any]:
    top = {name: getattr(widemargin, name) for name in widemargin.__all__}
    named = {name: value for name, value in vars(objectives).items() if isinstance(value, objectives.Objective)}
    return {**named, "UNIT": balls.UNIT, **top, **PARTS}
