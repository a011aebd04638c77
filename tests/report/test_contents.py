import pytest

from widemargin.report import study
from widemargin.report.contents import contents
from widemargin.report.store import Store


def test_the_contents_are_what_the_studies_say(tmp_path: object) -> None:
    """If not: python -m widemargin_studies.contents"""
    listed, hardware = contents()
    assert list(listed) == study.names()
    assert hardware
    for name, one in listed.items():
        work = study.load(name)
        assert one.title == work.TITLE
        assert one.parts == work.missing(Store(tmp_path))  # type: ignore[arg-type]
        assert one.core_minutes > 0
        if not isinstance(work, study.Reckoning):
            assert one.core_minutes == pytest.approx(work.CORE_MINUTES, rel=0.05)
