"""The public names of the package, as a program sees them that imports them all."""

from typing import Any

import widemargin


def public_names() -> dict[str, Any]:
    return {name: getattr(widemargin, name) for name in widemargin.__all__}
