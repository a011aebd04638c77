import pytest

from widemargin.report import study
from widemargin.report.store import Store


def test_every_declared_study_is_complete(tmp_path: object) -> None:
    assert {"demo", "fig1", "fig3", "theorem", "near-points"} <= set(study.names())
    for name in study.names():
        found = study.load(name)
        assert found.TITLE
        assert found.missing(Store(tmp_path)) > 0  # type: ignore[arg-type]
        assert callable(found.run)
        assert callable(found.report)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ValueError, match="there is no study named 'figg3': did you mean fig3"):
        study.load("figg3")
    with pytest.raises(ValueError, match="`widemargin study list` shows all"):
        study.load("0000000000")
