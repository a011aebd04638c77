from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.tally import PAGE, Tally

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Rows of docs/reliability.md: all of them anew, or in a run of some tests those of these tests."""
    asked = {Path(word.partition("::")[0]).resolve() for word in request.config.args}
    whole = asked <= {HERE, HERE.parent} and request.config.option.keyword == ""
    found = Tally() if whole or not PAGE.exists() else Tally.of_page(PAGE.read_text())
    yield found
    PAGE.write_text(found.page())
