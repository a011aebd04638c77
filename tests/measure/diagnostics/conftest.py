import pytest

from widemargin.measure.diagnostics import strength, suite


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """These networks are small enough for less effort."""
    monkeypatch.setattr(suite, "MANY_STEPS", 30)
    monkeypatch.setattr(strength, "MANY_STEPS", 30)
    monkeypatch.setattr(suite, "_QUERIES", 100)
    monkeypatch.setattr(strength, "_DRAWS", 8)
