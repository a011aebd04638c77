from collections.abc import Iterator

import pytest

from faults.tally import PAGE, Tally


@pytest.fixture(scope="session")
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Only a whole `pytest -m slow tests/faults` in which nothing failed writes the page."""
    found = Tally()
    yield found
    chosen = {item.nodeid for item in request.session.items if "tally" in getattr(item, "fixturenames", ())}
    if not found.failed and chosen and not request.session.testsfailed and request.config.option.keyword == "":
        PAGE.write_text(found.page())
